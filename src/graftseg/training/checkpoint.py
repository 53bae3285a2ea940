"""Checkpoints that are whole or are not used at all.

A file is an 8-byte mark, the SHA-256 of what follows, and what ``torch.save`` wrote. A torn file or a flipped bit is
found by its sum, and the checkpoint before it is taken instead.
"""

import hashlib
import io
import logging
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_bytes

MARK = b"GRAFTSEG"
HEADER = len(MARK) + hashlib.sha256().digest_size
KEPT = 2
OLDER = "the one before it is used"
logger = logging.getLogger(__name__)

State = dict[str, Any]


def save_checkpoint(folder: Path, step: int, state: State) -> Path:
    """Write the state after ``step`` steps, atomically, and keep this one and the one before."""
    stream = io.BytesIO()
    torch.save(state, stream)
    content = stream.getvalue()
    path = checkpoint_path(folder, step)
    write_bytes(path, MARK + hashlib.sha256(content).digest() + content)
    for old in checkpoints_in(folder)[:-KEPT]:
        old.unlink()
    return path


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> State:
    """Read a checkpoint whose sum is right; nothing in the file can run code."""
    content = path.read_bytes()
    body = memoryview(content)[HEADER:]
    if content[: len(MARK)] != MARK or hashlib.sha256(body).digest() != content[len(MARK) : HEADER]:
        raise UserError(Code.CHECKPOINT_DAMAGED, path, "the checkpoint is damaged", OLDER)
    try:
        state: State = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
    except torch.OutOfMemoryError:
        raise
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(Code.CHECKPOINT_DAMAGED, path, f"not a checkpoint ({reason})", OLDER) from None
    return state


def load_latest(folder: Path, device: torch.device | str = "cpu") -> tuple[Path, State] | None:
    """The newest undamaged checkpoint of a folder and its file, or None if it has none; damaged ones are renamed."""
    paths = checkpoints_in(folder)
    damaged: dict[Path, UserError] = {}
    for path in reversed(paths):
        try:
            state = load_checkpoint(path, device)
        except UserError as error:
            damaged[path] = error
            continue
        for other, finding in damaged.items():
            logger.warning("%s", finding)
            other.rename(other.with_suffix(".damaged"))
        return path, state
    if paths:
        which = "the only checkpoint is" if len(paths) == 1 else f"all {len(paths)} checkpoints are"
        raise UserError(
            Code.CHECKPOINT_DAMAGED,
            folder,
            f"{which} damaged",
            "remove what is in it, and --resume trains from the first step",
        )
    return None


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return sorted(folder.glob("step-*.ckpt"))


def checkpoint_path(folder: Path, step: int) -> Path:
    """The file of the checkpoint after so many steps."""
    return folder / f"step-{step:08d}.ckpt"


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
