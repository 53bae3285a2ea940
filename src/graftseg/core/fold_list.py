"""The runs whose networks predict together: one run, or the folds that a folder holds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, read_object
from graftseg.core.names import spelled
from graftseg.core.run_folder import RunFolder

SHARED = ("recipe", "method", "seed")
"""What a fold and the list of folds both tell."""


class Fold(BaseModel):
    """The labeled cases that one fold's network never sees."""

    held_out: list[str] = Field(min_length=1)


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
            raise UserError(Code.NO_SUCH_FOLD, f"--fold {fold}", f"{run.path} holds no folds", "leave out --fold")
        return [run]
    if fold is not None and not 0 <= fold < count:
        raise UserError(
            Code.NO_SUCH_FOLD, f"--fold {fold}", f"{run.path} has {count} folds", f"choose one from 0 to {count - 1}"
        )
    chosen = {number: run.fold(number) for number in (range(count) if fold is None else [fold])}
    for one in chosen.values():
        if not one.exists or one.manifest().get("status") != "finished":
            raise _unfinished(one)
    refuse_exchanged(run, chosen)
    return list(chosen.values())


def refuse_exchanged(run: RunFolder, folds: Iterable[int] | None = None) -> None:
    """Refuse folds that are not those that the folder's list tells of, since one of the two was exchanged.

    ``folds`` are the numbers of those to look at, by default all. What a fold does not tell is not looked at.
    """
    told, parts = read_object(run.folds_file), held_out_of(run)
    for number in range(len(parts)) if folds is None else folds:
        one, part = run.fold(number), parts[number]
        if not one.exists:
            raise _unfinished(one)
        facts = one.manifest()
        other = [key for key in SHARED if key in facts and key in told and facts[key] != told[key]]
        if not _is_held_out(part, facts.get("store", {})):
            other.insert(0, f"held-out cases, which are {', '.join(part)}")
        if other:
            finding = f"not the fold that {run.folds_file} tells of (differ: {'; '.join(other)})"
            raise UserError(
                Code.NO_SUCH_FOLD, one.path, finding, "restore one of the two, or train anew into another --out"
            )


def _unfinished(fold: RunFolder) -> UserError:
    return UserError(
        Code.RUN_UNFINISHED, fold.path, "this fold has not been trained to its end", "go on with train --resume"
    )


def _is_held_out(part: Sequence[str], store: Mapping[str, Any]) -> bool:
    """Whether a run has held out these cases, after those that its recipe holds out anyway, and has seen none."""
    own = _spelled(store.get("held_out", part))[-len(part) :]
    seen = _spelled([*store.get("labeled", ()), *store.get("unlabeled", ())])
    return sorted(own) == sorted(_spelled(part)) and not {*own} & {*seen}


def _spelled(names: Iterable[str]) -> list[str]:
    return [spelled(str(name)) for name in names]


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
        raise UserError(
            Code.NO_SUCH_FOLD, run.folds_file, "not a list of folds", "restore the file or train anew"
        ) from None
