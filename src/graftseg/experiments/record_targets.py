"""What may stand where a record is to be written: nothing, or the record of the same run; never a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_object
from graftseg.core.permissions import refuse_unwritable
from graftseg.core.run_folder import LOCK, RunFolder

ELSEWHERE = "name another folder as --results or --out"


def refuse_place(folder: Path) -> None:
    """Refuse a folder that no record can be written into, before any work is done for it."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if there.exists() and not there.is_dir():
        raise UserError(Code.RECORD_INVALID, there, "not a folder", ELSEWHERE)
    refuse_unwritable(folder)
    held = RunFolder(folder)
    if any(path.exists() for path in (held.path / LOCK, held.weights_file, held.checkpoints)):
        raise UserError(Code.UNSAFE_TARGET, folder, "holds a run, over which its record would be written", ELSEWHERE)


def refuse_run(folder: Path, run: Path) -> None:
    """Refuse the folder of a run, and what lies in it, as the place of its record, also before the run is there."""
    if folder.resolve() == run.resolve():
        raise UserError(Code.UNSAFE_TARGET, folder, "the record would be written over the run itself", ELSEWHERE)
    if folder.resolve().is_relative_to(run.resolve()):
        raise UserError(Code.UNSAFE_TARGET, folder, f"the record would lie in the folder of its run, {run}", ELSEWHERE)


def refuse_other(folder: Path, facts: Mapping[str, Any]) -> None:
    """A record is only replaced by that of the same run; one that is damaged, unless it is told to be of another."""
    known = [_weights(folder / name) for name in ("run.json", "metrics.json")]
    told = next((weights for weights in known if weights is not None), None)
    if told not in (None, facts.get("weights")):
        raise UserError(Code.RECORD_INVALID, folder, "holds the record of another run", "remove it or name a --variant")


def _weights(path: Path) -> str | None:
    """The hash of the network that a file of a record tells of, if it can be read and does so."""
    try:
        weights = read_object(path).get("weights")
    except UserError:
        return None
    return weights if isinstance(weights, str) else None
