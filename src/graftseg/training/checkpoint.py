"""Checkpoints that are whole or are not used at all.

A file is an 8-byte mark, the SHA-256 of what follows, and what ``torch.save`` wrote. A torn file or a flipped bit is
found by its sum, and the checkpoint before it is taken instead.
"""

import hashlib
import io
import logging
import pickle
from pathlib import Path
from typing import Any

import torch

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
