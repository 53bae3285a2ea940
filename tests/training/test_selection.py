"""The kept student: best scores, ties, the content of a checkpoint, and refused settings."""

import logging
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tiny import recipe_tree, tiny_method, tiny_recipe

from graftseg import api
from graftseg.core.errors import Code
from graftseg.data.store import Store
from graftseg.evaluation.metrics import dice
from graftseg.experiments.seeds import train_seeds
from graftseg.methods import Method
from graftseg.recipes.settings import ScoredSplit, SelectionSettings
from graftseg.training.selection import Selector, mean_dice, scored_cases
from loops import for_each
from user_errors import user_error

VAL = SelectionSettings(protocol="val", every=1)


class Scripted:
    """Scores from a list, one per call. The mode of the method is recorded."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.left, self.modes = list(scores), list[bool]()

    def __call__(self, method: Method) -> dict[str, float]:
        self.modes.append(method.training or torch.is_grad_enabled())
        return {"dice": self.left.pop(0), "dice core": 0.25}


def selector_of(settings: SelectionSettings, carried: Sequence[int] = (), **scores: Sequence[float]) -> Selector:
    listed: dict[ScoredSplit, Any] = {on: Scripted(values) for on, values in scores.items()}  # type: ignore[misc]
    return Selector(settings, listed, carried)


def student_after(method: Method, step: int) -> None:
    """Set all weights of the student to its step."""
    with torch.no_grad():
        for parameter in method.student.parameters():
            parameter.fill_(step)


def run(selector: Selector, steps: int, method: Method | None = None, stage: int = 0) -> Method:
    method = method or tiny_method("supervised", 2)
    for step in range(1, steps + 1):
        student_after(method, step)
        if selector.is_due(step):
            selector.score(method, {}, stage=stage, step=step)
    return method


def value_of(method: Method) -> float:
    return float(next(method.student.parameters()).detach().flatten()[0])


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=6))
def test_the_first_of_the_best_is_kept(scores: list[float]) -> None:
    selector = selector_of(VAL, validation=scores)
    method = run(selector, len(scores))
    assert selector.chosen is not None
    expected = scores.index(max(scores)) + 1
    assert (selector.chosen.step, selector.chosen.dice) == (expected, max(scores))
    selector.rewind(method, {}, 0)
    assert value_of(method) == expected


@pytest.mark.parametrize(
    ("scores", "paper", "exact"),
    [
        ([0.87652, 0.87651], 2, 1),  # 0.87651 > 0.8765
        ([0.87652, 0.87650], 1, 1),  # 0.8765 is not larger than 0.8765
        ([0.87656, 0.87658], 1, 2),  # 0.87658 < 0.8766
        ([0.87656, 0.87661], 2, 2),
    ],
)
def test_the_best_dice_on_test_cases_has_four_digits_in_the_paper(scores: list[float], paper: int, exact: int) -> None:
    by_paper: dict[ScoredSplit, int] = {"test": paper, "validation": exact}
    for cases, step in by_paper.items():
        selector = Selector(SelectionSettings(protocol="paper", cases=cases, every=1), {cases: Scripted(scores)})
        run(selector, len(scores))
        assert selector.chosen is not None
        assert (selector.chosen.step, selector.chosen.dice) == (step, scores[step - 1])
    oracle = selector_of(SelectionSettings(oracle=True, every=1), test=scores)
    run(oracle, len(scores))
    assert oracle.best["test"].step == exact


@pytest.mark.parametrize(
    ("settings", "due"),
    [
        ({}, []),
        ({"every": 3}, [3, 6, 9]),
        ({"every": 3, "first": 6}, [6, 9]),
        ({"every": 4, "first": 5}, [8]),
    ],
)
def test_when_students_are_scored(settings: dict[str, Any], due: list[int]) -> None:
    selector = Selector(SelectionSettings(**settings), {})
    assert [step for step in range(1, 10) if selector.is_due(step)] == due


@pytest.mark.parametrize(
    ("settings", "checkpoint", "shipped", "record"),
    [
        ({"protocol": "last"}, "last", 3, ("validation", 1)),
        ({"protocol": "last", "oracle": True}, "last", 3, ("test", 2)),
        ({"protocol": "val"}, "best on validation, step 1", 1, ("validation", 1)),
        ({"protocol": "val", "oracle": True}, "best on validation, step 1", 1, ("test", 2)),
        ({"protocol": "paper"}, "best on validation, step 1 (protocol paper)", 1, ("validation", 1)),
        ({"protocol": "paper", "cases": "test"}, "best on test, step 2 (protocol paper)", 2, ("test", 2)),
    ],
)
def test_what_each_protocol_reports(
    settings: dict[str, Any], checkpoint: str, shipped: int, record: tuple[str, int]
) -> None:
    settings = {"every": 1, **settings}
    selector = selector_of(SelectionSettings(**settings), validation=[0.9, 0.5, 0.1], test=[0.3, 0.4, 0.2])
    method = run(selector, 3)
    selector.rewind(method, {}, 0)
    assert (selector.checkpoint, value_of(method)) == (checkpoint, shipped)
    assert selector.best_to_save is not None
    assert (selector.best_to_save.on, selector.best_to_save.step) == record
    assert selector.best_to_save.to_json() == {
        "on": record[0],
        "step": record[1],
        "stage": 0,
        "dice": {"validation": 0.9, "test": 0.4}[record[0]],
    }


def test_scoring_returns_all_scores_and_keeps_all_modes() -> None:
    selector = selector_of(SelectionSettings(every=1, oracle=True), validation=[0.5], test=[0.75])
    method = tiny_method("bcp", 2)
    teacher = method.get_submodule("teacher")
    teacher.eval()
    scores = selector.score(method, {}, stage=1, step=7)
    assert scores == {"dice": 0.5, "dice core": 0.25, "test dice": 0.75, "test dice core": 0.25}
    assert method.training and method.student.training and not teacher.training
    assert all(scripted.modes == [False] for scripted in selector._scores.values())  # type: ignore[attr-defined]


def test_a_failing_score_leaves_the_mode_too() -> None:
    selector = selector_of(VAL, validation=[])
    method = tiny_method("supervised", 2)
    with pytest.raises(IndexError):
        selector.score(method, {}, stage=0, step=1)
    assert method.training and selector.best == {}


def test_a_stage_without_a_score_continues_from_its_last_state(caplog: pytest.LogCaptureFixture) -> None:
    selector = selector_of(SelectionSettings(protocol="val", every=5), validation=[])
    method = run(selector, 4)
    with caplog.at_level(logging.WARNING):
        selector.rewind(method, {}, 1)
    assert value_of(method) == 4 and selector.checkpoint == "last" and selector.best_to_save is None
    assert "stage 2 ended without a score (selection.every: 5, selection.first: 0)" in caplog.text


def test_the_protocol_last_never_rewinds_nor_warns(caplog: pytest.LogCaptureFixture) -> None:
    selector = selector_of(SelectionSettings(every=5), validation=[])
    selector.rewind(run(selector, 4), {}, 0)
    assert caplog.text == ""


def test_students_of_the_stage_before_do_not_compete() -> None:
    selector = selector_of(VAL, validation=[0.9, 0.2, 0.3])
    method = run(selector, 1)
    selector.reset()
    run(selector, 2, method, stage=1)
    assert selector.chosen is not None and selector.chosen.to_json()["dice"] == 0.3
    assert selector.chosen.stage == 1


@pytest.mark.parametrize("cut", range(4))
def test_a_checkpoint_contains_the_best_student_so_far(cut: int) -> None:
    scores = [0.25, 0.75, 0.5, 0.75]
    before = selector_of(VAL, validation=scores[:cut])
    run(before, cut)
    after = selector_of(VAL, validation=scores[cut:])
    after.load_state(before.state())
    method = tiny_method("supervised", 2)
    for step in range(cut + 1, 5):
        student_after(method, step)
        after.score(method, {}, stage=0, step=step)
    after.rewind(method, {}, 0)
    assert after.chosen is not None and after.chosen.step == 2 and value_of(method) == 2


@pytest.mark.parametrize(("carried", "momentum"), [((0,), 1.0), ((), 2.0)])
def test_momenta_are_restored_with_the_student_if_the_next_stage_uses_them(
    carried: tuple[int, ...], momentum: float
) -> None:
    selector = selector_of(VAL, carried, validation=[0.9, 0.5])
    method = tiny_method("supervised", 2)
    parameters = list(method.student.parameters())
    optimizers = {"student": torch.optim.SGD(parameters, lr=0.0, momentum=1.0)}
    for step in (1, 2):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizers["student"].step()
        selector.score(method, optimizers, stage=0, step=step)
    selector.rewind(method, optimizers, 0)
    buffers = [optimizers["student"].state[parameter]["momentum_buffer"] for parameter in parameters]
    assert all(bool((buffer == momentum).all()) for buffer in buffers)


def test_what_is_kept_does_not_move_with_the_training() -> None:
    selector = selector_of(VAL, validation=[0.5])
    method = run(selector, 1)
    student_after(method, 8)
    kept = selector.chosen
    assert kept is not None and float(next(iter(kept.student.values())).flatten()[0]) == 1
    assert kept.student.keys() == method.student.state_dict().keys(), "buffers of batch norms are kept too"


@pytest.mark.parametrize(
    ("settings", "keyword"),
    [
        ({"every": 0}, "greater than or equal to 1"),
        ({"protocol": "best"}, "should be 'last', 'val' or 'paper'"),
        ({"cases": "unlabeled"}, "should be 'validation' or 'test'"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], keyword: str) -> None:
    with pytest.raises(ValidationError, match=keyword):
        SelectionSettings(**settings)


@for_each(
    ("settings", "every"),
    [
        ({}, None),
        ({"cases": "test"}, None),
        ({"every": 7}, 7),
        ({"oracle": False, "every": None}, None),
        ({"oracle": True}, 200),
        ({"protocol": "val"}, 200),
        ({"protocol": "paper", "every": None}, 200),
        ({"protocol": "paper", "cases": "test"}, 200),
        ({"protocol": "paper", "every": 7}, 7),
    ],
)
def test_scores_that_are_needed_are_made_every_200_steps_unless_said(
    settings: dict[str, Any], every: int | None
) -> None:
    chosen = SelectionSettings(**settings)
    assert chosen.every == every and SelectionSettings(**chosen.model_dump()) == chosen


@for_each(
    ("settings", "reads_test_labels", "needs_validation"),
    [
        ({}, False, False),
        ({"every": 5}, False, True),
        ({"every": 5, "oracle": True}, True, False),
        ({"every": 5, "oracle": True, "cases": "test"}, True, False),
        ({"every": 5, "protocol": "val"}, False, True),
        ({"every": 5, "protocol": "val", "oracle": True}, True, True),
        ({"every": 5, "protocol": "paper"}, False, True),
        ({"every": 5, "protocol": "paper", "cases": "test"}, True, False),
        ({"cases": "test"}, False, False),
        ({"every": 5, "cases": "test"}, False, False),
        ({"every": 5, "cases": "test", "protocol": "val"}, False, True),
    ],
)
def test_which_cases_are_opened(settings: dict[str, Any], reads_test_labels: bool, needs_validation: bool) -> None:
    chosen = SelectionSettings(**settings)
    assert (chosen.reads_test_labels, chosen.needs_validation) == (reads_test_labels, needs_validation)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0]))
def test_mean_dice_is_that_of_the_masks(seed: int, empty: float) -> None:
    rng = np.random.default_rng(seed)
    masks = rng.random((3, 2, 4, 9)) < rng.choice([0.0, 0.4])
    masks[0, :, 1] = False
    counts = np.stack([(masks[:, 0] & masks[:, 1]).sum(-1), masks[:, 0].sum(-1), masks[:, 1].sum(-1)], axis=1)
    expected = [
        math.fsum(dice(case[0, k], case[1, k]) if case[:, k].any() else empty for case in masks) / 3 for k in range(4)
    ]
    assert mean_dice(counts, empty=empty).tolist() == pytest.approx(expected, abs=1e-15)


def test_a_validation_list_of_the_data_joins_the_held_out_cases(store: Store) -> None:
    first, *others = store.of("labeled")
    listed = replace(store, cases=(replace(first, split="validation"), *others, *store.of("test")))
    batches = recipe_tree()["batches"]
    recipe = tiny_recipe(batches=batches | {"validation_cases": 1}, selection={"every": 1, "protocol": "val"})
    names = {on: [case.name for case in cases] for on, cases in scored_cases(recipe, listed).items()}
    assert names == {"validation": ["labeled_003", "labeled_000"]}
    recipe = tiny_recipe(selection={"every": 1, "protocol": "paper"})
    assert [case.name for case in scored_cases(recipe, listed)["validation"]] == ["labeled_000"]


@pytest.mark.parametrize(
    ("selection", "unlabeled_test", "keyword"),
    [
        ({"protocol": "val"}, False, "no validation cases"),
        ({"protocol": "paper", "cases": "test"}, True, "selection.cases"),
        ({"oracle": True}, True, "selection.oracle"),
    ],
)
def test_scans_that_cannot_be_scored_are_refused_before_they_are_prepared(
    scans: Path, tmp_path: Path, selection: dict[str, Any], unlabeled_test: bool, keyword: str
) -> None:
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    if unlabeled_test:
        shutil.rmtree(data / "labelsTs")
    recipe = tiny_recipe(selection=selection)
    with user_error(Code.RECIPE_MISMATCH, data, keyword):
        api.train(recipe, data, tmp_path / "run", device="cpu")
    with user_error(Code.RECIPE_MISMATCH, data, keyword):
        train_seeds(recipe, data, tmp_path / "run", 1, device="cpu")
    assert not (tmp_path / "run").exists()


def test_scans_without_a_class_may_be_left_out() -> None:
    """The prediction of a class in a scan without it does not count either."""
    overlap, predicted, reference = (
        ([2, 0, 0, 0], [1, 0, 0, 0]),
        ([3, 0, 0, 5], [2, 1, 0, 0]),
        ([1, 0, 0, 0], [2, 1, 0, 0]),
    )
    counts = np.stack([overlap, predicted, reference], axis=1)
    np.testing.assert_array_equal(mean_dice(counts, empty=1.0), [0.75, 0.5, 1.0, 0.5])
    np.testing.assert_array_equal(mean_dice(counts, empty=1.0, present_only=True), [0.75, 0.0, math.nan, math.nan])
