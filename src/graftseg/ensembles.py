"""The runs whose networks predict together: one run, or the folds that a folder holds."""

from pydantic import BaseModel, ValidationError

from graftseg.errors import UserError
from graftseg.files import read_json
from graftseg.runs import RunFolder


class Fold(BaseModel):
    """The labeled cases that one fold's network never sees."""

    held_out: list[str]


class FoldList(BaseModel):
    """What the list of a folder's folds must hold."""

    folds: list[Fold]


def segmenters_of(run: RunFolder, fold: int | None = None) -> list[RunFolder]:
    """The runs whose probabilities are averaged: a single run, all folds of a folder, or the one that is named.

    Folds that have not ended are refused, so that a mean is always one over all of them.
    """
    count = fold_count(run)
    if not count:
        if fold is not None:
            raise UserError(f"--fold {fold}", f"{run.path} holds no folds", "leave out --fold")
        return [run]
    if fold is not None and not 0 <= fold < count:
        raise UserError(f"--fold {fold}", f"{run.path} has {count} folds", f"choose one from 0 to {count - 1}")
    chosen = [run.fold(number) for number in (range(count) if fold is None else [fold])]
    for one in chosen:
        if not one.exists or one.manifest().get("status") != "finished":
            raise UserError(one.path, "this fold has not been trained to its end", "go on with train --resume")
    return chosen


def fold_count(run: RunFolder) -> int:
    """How many folds a folder holds or will hold; 0 for a single run and for what is no run."""
    return len(held_out_of(run)) if run.folds_file.is_file() else 0


def fold_states(run: RunFolder) -> dict[str, str]:
    """How far each fold of a folder has come, by the name of its folder."""
    folds = [run.fold(number) for number in range(fold_count(run))]
    return {fold.path.name: str(fold.manifest().get("status")) if fold.exists else "not begun" for fold in folds}


def held_out_of(run: RunFolder) -> list[tuple[str, ...]]:
    """Names of the cases that each fold holds out, as the folder's list of folds tells them."""
    try:
        return [tuple(fold.held_out) for fold in FoldList.model_validate(read_json(run.folds_file)).folds]
    except ValidationError:
        raise UserError(run.folds_file, "not a list of folds", "restore the file or train anew") from None
