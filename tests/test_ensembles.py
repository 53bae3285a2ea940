"""Which networks predict together."""

import json
from pathlib import Path

import pytest

from graftseg.ensembles import fold_count, fold_states, segmenters_of
from graftseg.errors import UserError
from graftseg.runs import FORMAT, RunFolder


def begin(run: RunFolder, status: str = "finished") -> RunFolder:
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
            begin(run.fold(number), state)
    return run


def test_a_single_run_predicts_alone(tmp_path: Path) -> None:
    run = begin(RunFolder(tmp_path / "run"))
    assert segmenters_of(run) == [run] and fold_count(run) == 0
    with pytest.raises(UserError, match="holds no folds; leave out --fold"):
        segmenters_of(run, 0)


def test_folds_predict_together_or_one_of_them(tmp_path: Path) -> None:
    run = folds_in(tmp_path / "run", ["finished"] * 11)
    names = [one.path.name for one in segmenters_of(run)]
    assert names == [f"fold-{number}" for number in range(11)]
    (one,) = segmenters_of(run, 10)
    assert one.path == run.path / "fold-10"
    for wrong in (-1, 11):
        with pytest.raises(UserError, match="has 11 folds; choose one from 0 to 10"):
            segmenters_of(run, wrong)


@pytest.mark.parametrize("state", ["", "stopped", "running"])
def test_a_mean_is_one_over_all_folds(tmp_path: Path, state: str) -> None:
    run = folds_in(tmp_path / "run", ["finished", state, "finished"])
    with pytest.raises(UserError, match="fold-1: this fold has not been trained to its end; go on with"):
        segmenters_of(run)
    assert [one.path.name for one in segmenters_of(run, 2)] == ["fold-2"]
    assert fold_states(run) == {"fold-0": "finished", "fold-1": state or "not begun", "fold-2": "finished"}


@pytest.mark.parametrize("content", ["[]", "{}", '{"folds": [{"held_out": 3}]}'])
def test_a_damaged_list_of_folds_is_refused(tmp_path: Path, content: str) -> None:
    run = folds_in(tmp_path / "run", ["finished"])
    run.folds_file.write_text(content)
    with pytest.raises(UserError, match="not a list of folds"):
        segmenters_of(run)
