"""Explanations for empty sections of a page: why a section is empty and which command fills it."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from graftseg.core.run_folder import RunFolder, fold_count
from graftseg.evaluation.testset import has_test_scans
from graftseg.recipes.baseline import SUPERVISED, existing_baselines
from graftseg.reporting.text import folder_name


class Remedy(NamedTuple):
    """A command that fills a section of a page, and a note on the command."""

    command: str
    note: str = ""


@dataclass(frozen=True)
class Missing:
    """Why a section is empty and how to fill it."""

    sentence: str  # the reason
    command: str = ""  # the command that fills the section
    note: str = ""  # a note on the command
    see_results: bool = False  # whether to refer to the results section, which shows the command


TEST_COMMAND = Remedy("graftseg test RUN")
TRAIN_COMMAND = Remedy("graftseg train RECIPE --data DATA --out RUN")
TEST_SCANS = "where DATA contains test scans (imagesTs/) and labels (labelsTs/); without test scans, train with --folds"
NO_BASELINE = "This run has no supervised baseline, so the benefit of the unlabeled scans is unknown."
NOT_COMPARED = "There is no other run to compare with."
BASELINE_UNFINISHED = "The supervised baseline of this run has not finished training."
BASELINE_UNTESTED = "The supervised baseline of this run has not been tested yet."


@dataclass(frozen=True)
class Commands:
    """Commands that fill the report of a run."""

    scores: Remedy  # the command that adds scores
    comparison: Remedy  # the command that adds a comparison
    reason: str = NO_BASELINE  # why there is no comparison
    scores_include_comparison: bool = False  # whether the command for the scores also adds the comparison


def commands_for(run: RunFolder) -> Commands:
    """Return the commands for a run. They depend on its test scans and its baseline."""
    name = command_path(run)
    test = Remedy(f"graftseg test {name}")
    scores = test if has_test_scans(run) else Remedy(f"{test.command} DATA", TEST_SCANS)
    baselines = existing_baselines(run)
    if any(baseline.manifest().get("status") == "finished" for baseline in baselines):
        return Commands(scores, scores, BASELINE_UNTESTED, scores_include_comparison=True)
    if run.manifest().get("method") == SUPERVISED:
        # a supervised run is compared with another run, not with a supervised baseline
        return Commands(scores, Remedy(f"graftseg report {name} --baseline OTHER_RUN"), NOT_COMPARED)
    return Commands(scores, baseline_remedy(run), BASELINE_UNFINISHED if baselines else NO_BASELINE)


def baseline_remedy(run: RunFolder) -> Remedy:
    """Return the command that trains or resumes the baseline of a run or of a cross-validation."""
    folds, name = fold_count(run), command_path(run)
    # unlike a shipped recipe, recipe.yaml includes the settings from the command line
    recipe, fold_option = ("RECIPE", f" --folds {folds}") if folds else (f"{name}/recipe.yaml", "")
    command = f"graftseg train {recipe} --data DATA --out {name}{fold_option} --resume --baseline"
    return Remedy(command, "" if folds else "and then test the run")


def command_path(run: RunFolder) -> str:
    """Return the path of a run for use in a command, without the folders above the run, such as ``my-run/fold-0``.

    Pages are shared with other people. If the run is a home folder, return ``RUN`` to hide its name.
    """
    names = _names(run.path.resolve())
    return quote("/".join(names)) if names[0] else "RUN"


def _names(path: Path) -> list[str]:
    """Return the name of a run, preceded by the names of the runs that contain it."""
    parent = RunFolder(path.parent)
    is_part = parent.exists or parent.folds_file.is_file() or path.name in {f"seed-{seed}" for seed in parent.seeds}
    return [*_names(path.parent), path.name] if is_part else [folder_name(path)]
