"""Empty parts of a page: why they are empty and which command fills them."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from graftseg.core.run_folder import RunFolder, fold_count
from graftseg.evaluation.testset import has_test_scans
from graftseg.recipes.baseline import SUPERVISED, existing_baselines
from graftseg.reporting.text import folder_name


class Remedy(NamedTuple):
    """A command that fills a part, and a note on it."""

    command: str
    note: str = ""


@dataclass(frozen=True)
class Missing:
    """Why a part is empty and which command fills it; ``see_results`` if the results already name the command."""

    sentence: str
    command: str = ""
    note: str = ""
    see_results: bool = False


TEST = Remedy("graftseg test RUN")
TRAIN = Remedy("graftseg train RECIPE --data DATA --out RUN")
THERE = "where DATA has test scans in imagesTs/ and their labels in labelsTs/; without any, train with --folds"
ALONE = "A semi-supervised run says little without a supervised one on the same labeled scans."
BEGUN = "The supervised baseline of this run was begun and has not been trained to its end."
UNTESTED = "The supervised baseline of this run is trained and not yet tested."


@dataclass(frozen=True)
class Gaps:
    """How a run gets scores, how something to stand beside it, and why there is nothing yet.

    ``by_test``: whether what gives scores gives both.
    """

    scores: Remedy
    beside: Remedy
    why: str = ALONE
    by_test: bool = False


UNKNOWN = Gaps(TEST, TEST)


def gaps_of(run: RunFolder) -> Gaps:
    """What works for a run: whether test scans of it are known, and how far a baseline beside it was trained."""
    name = shown(run)
    scores = Remedy(f"graftseg test {name}") if has_test_scans(run) else Remedy(f"graftseg test {name} DATA", THERE)
    kept = existing_baselines(run)
    if any(one.manifest().get("status") == "finished" for one in kept):
        return Gaps(scores, scores, UNTESTED, by_test=True)
    if run.manifest().get("method") == SUPERVISED:
        # it is its own baseline
        return Gaps(scores, Remedy(f"graftseg report {name} --baseline OTHER_RUN"))
    return Gaps(scores, baseline_for(run), BEGUN if kept else ALONE)


def baseline_for(run: RunFolder) -> Remedy:
    """What trains a baseline beside a run or beside folds, to its end if it was begun."""
    folds, name = fold_count(run), shown(run)
    # settings may have been given beside the recipe that the page names
    recipe, many = ("RECIPE", f" --folds {folds}") if folds else (f"{name}/recipe.yaml", "")
    command = f"graftseg train {recipe} --data DATA --out {name}{many} --resume --baseline"
    return Remedy(command, "" if folds else "and then test the run")


def shown(run: RunFolder) -> str:
    """The name of a run's folder for a command, behind that of the run that it is a part of; RUN where it tells whose.

    A page goes to other people, so that it does not say where the folder lies.
    """
    names = _names(run.path.resolve())
    return quote("/".join(names)) if names[0] else "RUN"


def _names(path: Path) -> list[str]:
    around = RunFolder(path.parent)
    is_part = around.exists or around.folds_file.is_file() or path.name in {f"seed-{seed}" for seed in around.seeds}
    return [*_names(path.parent), path.name] if is_part else [folder_name(path)]
