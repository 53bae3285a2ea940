"""The list of folds: members of the ensemble, and the status of each fold."""

import json
from pathlib import Path

import pytest

from graftseg.core.errors import Code
from graftseg.core.run_folder import FORMAT, RunFolder, ensemble_members, fold_count, fold_states
from user_errors import user_error


def start(run: RunFolder, status: str = "finished") -> RunFolder:
    run.path.mkdir(parents=True)
    run.manifest_file.write_text(json.dumps({"format": FORMAT, "status": status}))
    run.recipe_file.write_text("")
    return run


def folds_in(path: Path, states: list[str]) -> RunFolder:
    run = RunFolder(path)
    path.mkdir()
    run.folds_file.write_text(json.dumps({"folds": [{"held_out": [str(n)]} for n in range(len(states))]}))
    for number, state in enumerate(states):
        if state:
            start(run.fold(number), state)
    return run


def test_a_single_run_predicts_alone(tmp_path: Path) -> None:
    run = start(RunFolder(tmp_path / "run"))
    assert ensemble_members(run) == [run] and fold_count(run) == 0
    with user_error(Code.NO_SUCH_FOLD, "--fold 0", "omit --fold"):
        ensemble_members(run, 0)


def test_all_folds_or_one_of_them_predict(tmp_path: Path) -> None:
    run = folds_in(tmp_path / "run", ["finished"] * 11)
    names = [member.path.name for member in ensemble_members(run)]
    assert names == [f"fold-{number}" for number in range(11)]
    (member,) = ensemble_members(run, 10)
    assert member.path == run.path / "fold-10"
    for wrong in (-1, 11):
        with user_error(Code.NO_SUCH_FOLD, f"--fold {wrong}", "from 0 to 10"):
            ensemble_members(run, wrong)


@pytest.mark.parametrize("state", ["", "stopped", "running"])
def test_an_ensemble_needs_all_folds(tmp_path: Path, state: str) -> None:
    run = folds_in(tmp_path / "run", ["finished", state, "finished"])
    with user_error(Code.RUN_UNFINISHED, "fold-1"):
        ensemble_members(run)
    assert [member.path.name for member in ensemble_members(run, 2)] == ["fold-2"]
    shown = {"": "not started", "running": "interrupted"}.get(state, state)
    assert fold_states(run) == {"fold-0": "finished", "fold-1": shown, "fold-2": "finished"}


@pytest.mark.parametrize("content", ["[]", "{}", '{"folds": [{"held_out": 3}]}'])
def test_a_damaged_list_of_folds(tmp_path: Path, content: str) -> None:
    run = folds_in(tmp_path / "run", ["finished"])
    run.folds_file.write_text(content)
    with user_error(Code.DAMAGED_FILE, run.folds_file):
        ensemble_members(run)
