"""The start of a run from the trained network of an earlier run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.names import same_names
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.inference.model import load_network
from graftseg.recipes.recipe import Recipe, load_recipe
from graftseg.training.checkpoint import save_checkpoint
from graftseg.training.loop import Position, Stage, build_optimizers
from graftseg.training.selection import scored_cases


@dataclass(frozen=True)
class WarmStart:
    """The start of a run that continues the run ``run``.

    ``network`` is the folder of the weights to start from: the run, or its baseline if the run ships that. ``store``
    contains prepared cases that may be reused. The new run has ``fraction`` times the steps of a complete training.
    ``new_labels`` are the cases whose labels are new or were changed since the earlier run.
    """

    run: RunFolder
    network: RunFolder
    store: Path | None
    fraction: float
    new_labels: tuple[str, ...] = ()

    @property
    def weights_sha256(self) -> str:
        """The checksum of the weights to start from."""
        return str(self.network.manifest().get("weights"))

    @property
    def facts(self) -> dict[str, Any]:
        """The entry of ``run.json`` about the earlier run. It contains no path."""
        name = self.run.path.resolve().name
        known = {"run": name, "weights": self.weights_sha256, "fraction": self.fraction}
        return {"continued_from": known | {"new_labels": list(self.new_labels)}}

    def check(self, store: Store, recipe: Recipe) -> None:
        """Raise a UserError if the trained network does not fit the data or the settings of the new run."""
        before, known = self.network.training_manifest()["store"], load_recipe(self.network.recipe_file)
        again = "train a new run without --continue-from"
        if (classes := list(store.classes)) != before["classes"]:
            finding = f"the classes are {', '.join(classes)}, but {self.run.path} has {', '.join(before['classes'])}"
            raise UserError(Code.RUN_MISMATCH, store.path, finding, f"correct the label maps, or {again}")
        if store.channels != before["channels"]:
            finding = (
                f"the scans have {store.channels} channels, but {self.run.path} was trained with {before['channels']}"
            )
            raise UserError(Code.RUN_MISMATCH, store.path, finding, again)
        if other := [part for part in ("data", "network") if getattr(recipe, part) != getattr(known, part)]:
            finding = f"the settings of {other[0]} differ from those of the trained network"
            raise UserError(Code.RUN_MISMATCH, self.run.path, finding, f"leave {other[0]} unchanged, or {again}")
        scored = [case.name for case in scored_cases(recipe, store).get("validation", ())]
        if seen := sorted(same_names(scored, before.get("labeled", ()))):
            finding = f"the validation case {seen[0]} was a labeled training case of {self.run.path}"
            remedy = "add --set batches.validation_cases=0 --set selection.every=null --set selection.protocol=last"
            raise UserError(Code.RUN_MISMATCH, store.path, finding, remedy)


def save_start(
    run: RunFolder, start: WarmStart | None, stage: Stage, device: torch.device, identity: str | None
) -> None:
    """Save a checkpoint before the first step, with the weights of the earlier run in student and teacher.

    A resumed run then does not need the earlier run. ``start`` is None if the command was repeated without
    --continue-from. Then raise a UserError, because the run has no checkpoint yet.
    """
    if start is None:
        finding = "this run continues another run, but has no checkpoint yet"
        raise UserError(Code.RUN_UNFINISHED, run.path, finding, "repeat the command with --continue-from and --resume")
    method = stage.build().train()
    method.start_from(load_network(start.network, device).method)
    at = Position(0, 0, 0, method, build_optimizers(method, stage.settings), device, identity)
    save_checkpoint(run.checkpoints, 0, at.state() | {"selection": None})
