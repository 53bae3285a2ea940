"""Only the largest component is kept of classes that are one piece."""

from dataclasses import replace

import pytest
import yaml
from planning_fakes import CPU, case, facts, usual

from graftseg.data.pieces import Pieces
from graftseg.planning.components import component_choices
from graftseg.planning.facts import PieceCount
from graftseg.planning.frame import choose_frame
from graftseg.planning.plans import choose
from graftseg.recipes.recipe import parse_recipe

NONE, ONE, SEVERAL = PieceCount(), PieceCount(20, 20), PieceCount(20, 7)


@pytest.mark.parametrize(
    ("pieces", "rule"),
    [
        ((NONE, ONE, ONE), True),
        ((NONE, ONE, PieceCount(20, 19)), True),
        ((NONE, ONE, PieceCount(20, 18)), [1]),
        ((NONE, SEVERAL, ONE), [2]),
        ((NONE, SEVERAL, SEVERAL), False),
        ((NONE, ONE, NONE), [1]),
    ],
)
def test_rules(pieces: tuple[PieceCount, ...], rule: bool | list[int]) -> None:
    known = facts(case((32, 32, 32), (1, 1, 1)), classes=3, pieces=pieces)
    choices = component_choices(known, choose_frame(known), pseudo_labels=True)
    assert choices["inference.largest_component"].value == rule
    assert choices["stages.1.settings.largest_component"].value == rule
    if rule is not True:
        several = next(value for value in (1, 2) if rule is False or value not in rule)
        phrase = f"class {several} is one piece in {pieces[several].single} of {pieces[several].total}"
        assert phrase in choices["inference.largest_component"].reason


def test_pseudo_labels_of_slices_follow_the_pieces_in_slices() -> None:
    known = facts(case((64, 64, 8), (1, 1, 6)), pieces=(NONE, ONE), slice_pieces=(NONE, SEVERAL))
    choices = component_choices(known, choose_frame(known), pseudo_labels=True)
    assert choices["inference.largest_component"].value is True
    assert choices["stages.1.settings.largest_component"].value is False
    assert "7 of 20 slices" in choices["stages.1.settings.largest_component"].reason


@pytest.mark.parametrize(
    ("total", "large", "number"),
    [
        (20, {2}, 2),
        (3, {3}, 3),
        (2, {2}, None),
        (20, {1, 2}, None),
        (20, {0, 2}, None),
        (20, {1}, None),
        (20, {0}, None),
    ],
)
def test_classes_of_several_large_pieces_keep_all_of_them(total: int, large: set[int], number: int | None) -> None:
    kidneys = PieceCount(total, 0, frozenset(large))
    known = facts(case((32, 32, 32), (1, 1, 1)), classes=3, pieces=(NONE, ONE, kidneys))
    choices = component_choices(known, choose_frame(known), pseudo_labels=True)
    assert choices["inference.largest_component"].value == [1]
    kept = choices.get("inference.keep_components.2")
    assert (kept and kept.value) == number
    assert (
        number is None
        or f"class 2 is {number} large pieces in all {total}" in choices["inference.keep_components.2"].reason
    )


@pytest.mark.parametrize(
    ("sizes", "volume"),
    [
        ([(300, 200), (250,), (1000, 900, 200)], 0.2),
        ([(250,), (240,), (245, 230)], 0.23),
        ([(300, 200), (250,), (1001,)], None),  # too different
        ([(300, 200), (250,)], None),  # too few label maps
        ([(300, 200), (250,), ()], None),
    ],
)
def test_pieces_of_similar_size_give_the_smallest_component(sizes: list[tuple[int, ...]], volume: float | None) -> None:
    cases = [
        replace(case((32, 32, 32), (1, 1, 2)), pieces={1: Pieces(sum(each), len(each), each)} if each else {})
        for each in sizes
    ]
    known = facts(*cases, pieces=(NONE, SEVERAL))
    chosen = component_choices(known, choose_frame(known), pseudo_labels=False).get("inference.min_component_ml.1")
    assert (chosen and chosen.value) == volume
    one = replace(known, pieces=(NONE, ONE))
    assert "inference.min_component_ml.1" not in component_choices(one, choose_frame(one), pseudo_labels=False)


def test_a_smallest_component_needs_volumes_and_all_sizes() -> None:
    many, flat = Pieces(500, 17, (30,) * 16), Pieces(60, 2, (30, 30))
    for pieces, shape in ((many, (32, 32, 32)), (flat, (32, 32))):
        known = facts(*[replace(case(shape, (1,) * len(shape)), pieces={1: pieces})] * 3, pieces=(NONE, SEVERAL))
        assert "inference.min_component_ml.1" not in component_choices(known, choose_frame(known), pseudo_labels=False)


def test_a_planned_volume_is_in_the_recipe() -> None:
    cases = [replace(one, pieces={1: Pieces(60, 2, (30, 30))} if one.split == "labeled" else {}) for one in usual()]
    plan = choose(facts(*cases, pieces=(NONE, SEVERAL)), CPU)
    assert plan.recipe.inference.min_component_ml == {1: 0.015}
    assert parse_recipe(yaml.safe_load(plan.text), "plan") == plan.recipe


def test_a_planned_number_of_components_is_in_the_recipe() -> None:
    known = facts(*usual(), classes=3, pieces=(NONE, ONE, PieceCount(12, 0, frozenset({2}))))
    plan = choose(known, CPU)
    assert plan.recipe.inference.keep_components == {2: 2}
    assert parse_recipe(yaml.safe_load(plan.text), "plan") == plan.recipe
    assert parse_recipe(yaml.safe_load(plan.recipe.to_yaml()), "run") == plan.recipe


def test_a_supervised_recipe_has_no_pseudo_labels() -> None:
    known = facts(case((32, 32, 32), (1, 1, 1)))
    assert component_choices(known, choose_frame(known), pseudo_labels=False).keys() == {"inference.largest_component"}
