"""Which networks predict together."""

import json
from pathlib import Path
from typing import Any

import pytest

from graftseg.core.errors import UserError
from graftseg.core.run_folder import FORMAT, RunFolder, ensemble_members, fold_count, fold_states, refuse_exchanged


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
    assert ensemble_members(run) == [run] and fold_count(run) == 0
    with pytest.raises(UserError, match="holds no folds; leave out --fold"):
        ensemble_members(run, 0)


def test_folds_predict_together_or_one_of_them(tmp_path: Path) -> None:
    run = folds_in(tmp_path / "run", ["finished"] * 11)
    names = [one.path.name for one in ensemble_members(run)]
    assert names == [f"fold-{number}" for number in range(11)]
    (one,) = ensemble_members(run, 10)
    assert one.path == run.path / "fold-10"
    for wrong in (-1, 11):
        with pytest.raises(UserError, match="has 11 folds; choose one from 0 to 10"):
            ensemble_members(run, wrong)


@pytest.mark.parametrize("state", ["", "stopped", "running"])
def test_a_mean_is_one_over_all_folds(tmp_path: Path, state: str) -> None:
    run = folds_in(tmp_path / "run", ["finished", state, "finished"])
    with pytest.raises(UserError, match="fold-1: this fold has not been trained to its end; go on with"):
        ensemble_members(run)
    assert [one.path.name for one in ensemble_members(run, 2)] == ["fold-2"]
    assert fold_states(run) == {"fold-0": "finished", "fold-1": state or "not begun", "fold-2": "finished"}


@pytest.mark.parametrize("content", ["[]", "{}", '{"folds": [{"held_out": 3}]}'])
def test_a_damaged_list_of_folds_is_refused(tmp_path: Path, content: str) -> None:
    run = folds_in(tmp_path / "run", ["finished"])
    run.folds_file.write_text(content)
    with pytest.raises(UserError, match="not a list of folds"):
        ensemble_members(run)


def told_folds(path: Path) -> RunFolder:
    """Two folds that tell what they held out, besides what their recipe holds out anyway."""
    run = folds_in(path, ["finished"] * 2)
    for number in range(2):
        store = {"held_out": ["x", str(number)], "labeled": [str(1 - number)], "unlabeled": ["u"]}
        run.fold(number).update_manifest({"store": store, "recipe": "tiny", "seed": 0})
    told = json.loads(run.folds_file.read_text())
    run.folds_file.write_text(json.dumps(told | {"recipe": "tiny", "seed": 0}))
    return run


def test_folds_that_are_what_the_list_tells(tmp_path: Path) -> None:
    run = told_folds(tmp_path / "run")
    refuse_exchanged(run)
    assert len(ensemble_members(run)) == 2


def test_a_fold_in_the_place_of_another(tmp_path: Path) -> None:
    run = told_folds(tmp_path / "run")
    run.fold(0).manifest_file.write_bytes(run.fold(1).manifest_file.read_bytes())
    told = r"fold-0: not the fold that .*folds\.json tells of \(differ: held-out cases, which are 0\); restore one"
    for refused in (refuse_exchanged, ensemble_members):
        with pytest.raises(UserError, match=told):
            refused(run)
    assert [one.path.name for one in ensemble_members(run, 1)] == ["fold-1"]


@pytest.mark.parametrize(
    ("change", "differ"),
    [
        ({"seed": 7}, "seed"),
        ({"recipe": "other", "seed": 7}, "recipe; seed"),
        ({"store": {"held_out": ["x", "0"], "labeled": ["0", "1"]}}, "held-out cases, which are 0"),
        ({"store": {"held_out": ["x", "0"], "unlabeled": ["0"]}}, "held-out cases, which are 0"),
        ({"store": {"held_out": ["0", "x"]}}, "held-out cases, which are 0"),
    ],
)
def test_a_fold_that_was_trained_otherwise(tmp_path: Path, change: dict[str, Any], differ: str) -> None:
    run = told_folds(tmp_path / "run")
    run.fold(0).update_manifest(change)
    with pytest.raises(UserError, match=rf"\(differ: {differ}\)"):
        ensemble_members(run)


def test_a_list_of_other_cases(tmp_path: Path) -> None:
    run = told_folds(tmp_path / "run")
    told = json.loads(run.folds_file.read_text())
    run.folds_file.write_text(json.dumps(told | {"folds": [{"held_out": ["0"]}, {"held_out": ["2"]}]}))
    with pytest.raises(UserError, match=r"fold-1: not the fold .*\(differ: held-out cases, which are 2\)"):
        ensemble_members(run)


def test_names_in_another_unicode_form_are_the_same(tmp_path: Path) -> None:
    run = told_folds(tmp_path / "run")
    told = json.loads(run.folds_file.read_text())
    run.folds_file.write_text(json.dumps(told | {"folds": [{"held_out": ["\u00e9"]}, {"held_out": ["1"]}]}))
    run.fold(0).update_manifest({"store": {"held_out": ["e\u0301"], "labeled": ["1"]}})
    assert len(ensemble_members(run)) == 2
