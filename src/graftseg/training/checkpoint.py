"""Checkpoints: written atomically, verified by a checksum, loaded without running code.

A file consists of an 8-byte signature, a SHA-256 checksum, and the checksummed content, written by ``torch.save``.
If the newest checkpoint is damaged, the previous checkpoint is used.
"""

import hashlib
import io
import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from graftseg.core import ranks
from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_bytes
from graftseg.core.reading import read_bytes

SIGNATURE = b"GRAFTSEG"
HEADER_SIZE = len(SIGNATURE) + hashlib.sha256().digest_size
KEPT = 2
"""Number of checkpoints that a run keeps."""
REMEDY = "move the file away; --resume then continues from the previous checkpoint, if any, or from the first step"
logger = logging.getLogger(__name__)

State = dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run and the file it was loaded from."""

    path: Path
    state: State

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Raise a UserError if loading inside the block fails because the state does not fit this run."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
            reason = " ".join(str(error).split())[:200]
            finding = f"the checkpoint does not fit this run ({reason})"
            raise UserError(Code.CHECKPOINT_MISMATCH, self.path, finding, REMEDY) from None


def save_checkpoint(folder: Path, step: int, state: State) -> Path:
    """Write the state after ``step`` steps atomically, and delete all but the last two checkpoints."""
    stream = io.BytesIO()
    torch.save(state, stream)
    content = stream.getvalue()
    path = folder / f"step-{step:08d}.ckpt"
    write_bytes(path, SIGNATURE + hashlib.sha256(content).digest() + content)
    for old in checkpoints_in(folder)[:-KEPT]:
        old.unlink()
    return path


def copy_latest(folder: Path, target: Path) -> None:
    """Copy the newest checkpoint, which later checkpoints would replace."""
    write_bytes(target, read_bytes(checkpoints_in(folder)[-1]))


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> State:
    """Load a checkpoint after verifying its checksum; no code in the file is executed."""
    damaged = partial(UserError, Code.CHECKPOINT_DAMAGED, path, remedy="the previous checkpoint is used")
    try:
        content = read_bytes(path)
    except PermissionError:
        raise
    except OSError as error:
        raise damaged(finding=f"the checkpoint cannot be read ({error.strerror})") from None
    body = memoryview(content)[HEADER_SIZE:]
    if content[: len(SIGNATURE)] != SIGNATURE or hashlib.sha256(body).digest() != content[len(SIGNATURE) : HEADER_SIZE]:
        raise damaged(finding="damaged checkpoint")
    try:
        state: State = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
    except torch.OutOfMemoryError:
        raise
    except (pickle.UnpicklingError, RuntimeError, ValueError, LookupError, EOFError, TypeError):
        raise damaged(finding="cannot be loaded without executing code") from None
    return state


def load_latest(folder: Path, device: torch.device | str = "cpu") -> Checkpoint | None:
    """Load the newest undamaged checkpoint, and rename newer, damaged files. Return None if there is no checkpoint."""
    paths = checkpoints_in(folder)
    damaged: dict[Path, UserError] = {}
    for path in reversed(paths):
        try:
            state = load_checkpoint(path, device)
        except UserError as error:
            damaged[path] = error
            continue
        for other, problem in damaged.items():
            logger.warning("%s", problem)
            with suppress(FileNotFoundError):  # another rank renamed it
                other.rename(other.with_suffix(".damaged"))
        return Checkpoint(path, state)
    if paths:
        which = "the only checkpoint is" if len(paths) == 1 else f"all {len(paths)} checkpoints are"
        remedy = "delete the folder's content; --resume then trains from the first step"
        raise UserError(Code.CHECKPOINT_DAMAGED, folder, f"{which} damaged", remedy)
    return None


def load_latest_of_run(folder: Path, device: torch.device, identity: str | None) -> Checkpoint | None:
    """Load the newest undamaged checkpoint; raise a UserError if it belongs to another run.

    In runs of early versions, which saved no identity, ``identity`` and the entry ``run`` of the checkpoint are None.
    """
    found = load_latest(folder, device)
    if found is not None and found.state.get("run") != identity:
        finding = "the checkpoint belongs to another run, with other settings, another seed or other data"
        raise UserError(Code.CHECKPOINT_MISMATCH, found.path, finding, REMEDY)
    step = 0 if found is None else int(found.state["done"])
    if ranks.largest_of_all(step) != step:
        finding, remedy = "another rank has a later checkpoint", "use a folder that all machines see, then resume"
        raise UserError(Code.CHECKPOINT_MISMATCH, folder, finding, remedy)
    return found


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    return sorted(folder.glob("step-*.ckpt"))


def step_of(checkpoint: Path) -> int:
    """Return the number of steps before a checkpoint, which its name contains; 0 for another name."""
    number = checkpoint.stem.removeprefix("step-")
    return int(number) if number.isdecimal() else 0
