"""Score averages of the weights of a run and its supervised baseline: one job of ``run.py`` with further scores.

``python benchmarks/strangers/averages.py thin 6 --split 0 --seed 0 --results RESULTS`` plans, trains and tests a job
as ``run.py`` does. The run and its baseline share their first stage, so averages of their weights may be good networks.
The record has the scores of these averages and of the teacher, and what is known about each network without labels of
unlabeled and test scans: the Dice of the first labeled scans, and the implausible predictions of unlabeled scans.
"""

import argparse
import importlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from benchmarks_to_nifti import SCANS_PER_LABEL
from copies import Weights, with_weights
from families import FAMILIES
from run import LABELED, Job, dice_of, run
from safetensors.torch import load_file

from graftseg.core.devices import choose_device
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import open_store
from graftseg.experiments.test_run import score_run
from graftseg.inference.model import load_network
from graftseg.recipes.recipe import load_recipe
from graftseg.training.checkpoint import load_latest
from graftseg.training.learning_check import labeled_dice
from graftseg.training.shipping import check_networks

SHARES = (0.5, 0.7, 1.0)
"""Shares of the network trained with unlabeled scans in the averages. The rest is its baseline."""
TEACHER = "teacher."
"""Start of the names of the teacher's weights in a checkpoint."""


def average(run: Weights, baseline: Weights, share: float) -> Weights:
    """Return the average of two networks, including batch statistics. Integers are taken from the run."""
    return {
        name: share * own + (1 - share) * baseline[name] if own.is_floating_point() else own
        for name, own in run.items()
    }


def candidates(run: RunFolder) -> Iterator[tuple[str, Weights]]:
    """Yield the averages of a run and its baseline, and the teacher if the last checkpoint has one."""
    own, baseline = load_file(run.trained_file), load_file(run.baseline.trained_file)
    for share in SHARES:
        yield str(share), average(own, baseline, share)
    last = load_latest(run.checkpoints)
    state = {} if last is None else last.state["method"]
    teacher = {name.removeprefix(TEACHER): value for name, value in state.items() if name.startswith(TEACHER)}
    if teacher.keys() == own.keys():
        yield "teacher", teacher


@dataclass(frozen=True)
class Networks:
    """The networks of a tested run: its own, its baseline and their averages."""

    run: RunFolder
    scans: Path
    device: torch.device

    def facts(self) -> dict[str, object]:
        """Score the averages, and compare all networks on the training scans."""
        began, recipe, store = time.monotonic(), load_recipe(self.run.recipe_file), open_store(self.run.store)
        labeled = {"run": self._labeled(self.run), "baseline": self._labeled(self.run.baseline)}
        scores: dict[str, dict[str, float]] = {}
        counts: dict[str, object] = {}
        for name, weights in candidates(self.run):
            other = with_weights(self.run, weights, self.run.path.with_name(f"average-{name}"))
            tested = score_run(other, self.scans, lambda path: path, device=self.device)
            scores[name], labeled[name] = dice_of(tested.scores[other.path]), self._labeled(other)
        final = check_networks(recipe, store, self.run, self.run.baseline, self.device)
        if final is not None:
            counts = {"scans": final.scans, "run": dict(final.run), "baseline": dict(final.other)}
        seconds = round(time.monotonic() - began, 1)
        return {"averages": scores, "labeled_dice": labeled, "implausible": counts, "averages_seconds": seconds}

    def _labeled(self, folder: RunFolder) -> dict[str, float]:
        """Return the Dice of every class on the first labeled scans, in percent."""
        network, store = load_network(folder, self.device), open_store(self.run.store)
        dice = labeled_dice(network.recipe, store, network.method, self.device)
        return {name: round(100 * value, 2) for name, value in dice.items()}


def timing(run: RunFolder) -> dict[str, object]:
    """Return the times of a run and of its baseline."""
    keys = ("wall_seconds", "seconds_per_step")
    return {name: {key: folder.manifest().get(key) for key in keys} for name, folder in _both(run).items()}


def _both(run: RunFolder) -> dict[str, RunFolder]:
    return {"run": run} | ({"baseline": run.baseline} if run.baseline.exists else {})


def main() -> None:
    """Run one job, unless it is recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="hippocampus, la, acdc or a family of phantoms")
    parser.add_argument("labeled", type=int)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    for name in ("hippocampus", *SCANS_PER_LABEL):
        parser.add_argument(f"--{name}", type=Path, help="folder of the published files")
    parser.add_argument("--families", help="module with more families of phantoms, in a dictionary FAMILIES")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/averages"))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--device", choices=LABELED, default="cpu")
    parser.add_argument("--commit", required=True, help="commit to record")
    parser.add_argument("--scored", default="test scans", help="words for the scored scans, to record")
    arguments = parser.parse_args()
    if arguments.families:
        FAMILIES.update(importlib.import_module(arguments.families).FAMILIES)
    sources = {name: path for name in ("hippocampus", *SCANS_PER_LABEL) if (path := getattr(arguments, name))}
    job = Job(arguments.data, arguments.labeled, arguments.split, arguments.seed)
    target = arguments.results / f"{arguments.device}-{job.name}.json"
    if target.exists():
        return
    record = run(job, sources, arguments.work, arguments.minutes, arguments.device)
    record |= {"commit": arguments.commit, "scored": arguments.scored}
    folder = RunFolder(arguments.work / job.name / "run")
    record["timing"] = timing(folder)
    _write(record, target.with_suffix(".partial"))
    if folder.baseline.exists:
        record |= Networks(folder, arguments.work / job.name / "scans", choose_device(arguments.device)).facts()
    _write(record, target)
    target.with_suffix(".partial").unlink()
    print(job.name, _means(json.loads(target.read_text())), record["network"])


def _means(record: Mapping[str, Any]) -> dict[str, float]:
    scores = {key: record[key] for key in ("supervised", "unlabeled", "shipped")} | record.get("averages", {})
    return {key: round(fmean(values.values()), 2) for key, values in scores.items()}


def _write(record: Mapping[str, object], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
