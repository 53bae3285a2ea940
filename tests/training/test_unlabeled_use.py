"""How a run and folds used their unlabeled scans, according to the checks of the teacher."""

import json
from pathlib import Path

import pytest

from graftseg.core.run_folder import RunFolder
from graftseg.core.teacher_checks import Decision, TeacherCheck
from graftseg.evaluation.verdicts import AS_PLANNED, UnlabeledUse
from graftseg.training.unlabeled_use import unlabeled_use

FOUND = "the predictions of 1 of 4 unlabeled scans are implausible (1 with no foreground)"
SKIPPED: tuple[Decision, ...] = ("extend", "skip")


def write_checks(run: RunFolder, *decisions: Decision) -> RunFolder:
    run.path.mkdir(parents=True, exist_ok=True)
    rejected = {"stop": {"ring": "shrank to 20% of its volume"}}
    checks = [
        TeacherCheck(1, 4, rejected.get(decision, {"a": "no foreground"}), decision, step=12 * (decision == "stop"))
        for decision in decisions
    ]
    run.teacher_file.write_text(json.dumps({"checks": [check.to_json() for check in checks]}))
    return run


@pytest.mark.parametrize(
    ("decisions", "use"),
    [
        ((), AS_PLANNED),
        (("extend", "continue"), AS_PLANNED),
        (
            SKIPPED,
            UnlabeledUse(
                f"both networks are supervised, because the unlabeled scans were not used: {FOUND}",
                is_supervised_only=True,
            ),
        ),
        (
            ("continue", "stop"),
            UnlabeledUse(
                "the unlabeled scans were used only until step 12 of self-training, because ring shrank to 20% "
                "of its volume in unlabeled scans"
            ),
        ),
        (
            ("continue", "skip"),
            UnlabeledUse(f"the unlabeled scans were used only in an earlier stage, because {FOUND}"),
        ),
    ],
)
def test_a_run(tmp_path: Path, decisions: tuple[Decision, ...], use: UnlabeledUse) -> None:
    assert unlabeled_use(write_checks(RunFolder(tmp_path), *decisions)) == use


@pytest.mark.parametrize(
    ("folds", "note", "is_supervised_only"),
    [
        ([("continue",), ()], "", False),
        ([SKIPPED, ("continue",), SKIPPED], "the unlabeled scans were not used in 2 of 3 folds", False),
        (
            [SKIPPED, ("continue", "stop"), ()],
            "the unlabeled scans were not used in 1 and used only in part in 1 of 3 folds",
            False,
        ),
        (
            [SKIPPED, SKIPPED],
            "both networks are supervised, because the unlabeled scans were not used: in each of 2 folds, too few "
            "predictions were plausible for self-training",
            True,
        ),
    ],
)
def test_folds(tmp_path: Path, folds: list[tuple[Decision, ...]], note: str, is_supervised_only: bool) -> None:
    run = RunFolder(tmp_path)
    run.folds_file.write_text(json.dumps({"folds": [{"held_out": ["a"]} for _ in folds]}))
    for number, decisions in enumerate(folds):
        write_checks(run.fold(number), *decisions)
    assert unlabeled_use(run) == UnlabeledUse(note, is_supervised_only)
    assert run.is_supervised_only == is_supervised_only
