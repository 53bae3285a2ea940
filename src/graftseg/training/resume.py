"""A checkpoint that is whole, held against the training that is to go on from it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.training.checkpoint import State, checkpoint_path, load_checkpoint, load_latest

REMEDY = "move it away, and --resume goes on from the one before it or from the first step"


class _Shape(BaseModel):
    """What every checkpoint of a training holds."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    stage: int = Field(ge=0, strict=True)
    step: int = Field(ge=0, strict=True)
    done: int = Field(ge=0, strict=True)
    method: dict[str, Any]
    optimizers: dict[str, Any]
    random: Tensor
    random_cuda: Tensor | None = None
    seconds: float = Field(ge=0)
    selection: dict[str, Any] | None = None
    run: str | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint and its file."""

    path: Path
    state: State

    @contextmanager
    def loading(self) -> Iterator[None]:
        """While its parts are taken over: what does not go into the networks of this run is told in a sentence."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                Code.CHECKPOINT_MISMATCH, self.path, f"the checkpoint does not fit this run ({reason})", REMEDY
            ) from None


def saved_in(folder: Path, device: torch.device, steps: Sequence[int], identity: str | None) -> Saved | None:
    """The newest whole checkpoint of a folder, or None if it has none; one of another training is refused.

    ``steps`` are those of each stage, and ``identity`` is the run's own. Neither a run nor its checkpoints have one
    where they are older than that.
    """
    found = load_latest(folder, device)
    return None if found is None else _checked(*found, steps, identity)


def saved_last(folder: Path, device: torch.device, steps: Sequence[int], identity: str | None) -> Saved | None:
    """The checkpoint after the last step, or None if there is none; a damaged one and one of another are refused."""
    path = checkpoint_path(folder, sum(steps))
    return _checked(path, load_checkpoint(path, device), steps, identity) if path.is_file() else None


def _checked(path: Path, state: State, steps: Sequence[int], identity: str | None) -> Saved:
    try:
        shape = _Shape.model_validate(state)
    except ValidationError as error:
        first = error.errors()[0]
        finding = f"not a checkpoint of a training ({'.'.join(map(str, first['loc'])) or 'all'}: {first['msg']})"
        raise UserError(Code.CHECKPOINT_MISMATCH, path, finding, REMEDY) from None
    if shape.run != identity:
        raise UserError(
            Code.CHECKPOINT_MISMATCH,
            path,
            "the checkpoint is of another run, with other settings, another seed or other data",
            REMEDY,
        )
    if shape.stage >= len(steps) or shape.step > steps[shape.stage]:
        finding = f"the checkpoint is of stage {shape.stage + 1}, step {shape.step}, which this run does not have"
        raise UserError(Code.CHECKPOINT_MISMATCH, path, finding, REMEDY)
    if shape.done != sum(steps[: shape.stage]) + shape.step:
        finding = f"the checkpoint is of step {shape.step} of stage {shape.stage + 1} and of {shape.done} steps in all"
        raise UserError(Code.CHECKPOINT_MISMATCH, path, f"{finding}, which are not those of this run", REMEDY)
    if path != (own := checkpoint_path(path.parent, shape.done)):
        raise UserError(
            Code.CHECKPOINT_MISMATCH, path, f"the checkpoint is of step {shape.done}", f"name it {own.name}, as it was"
        )
    return Saved(path, state)
