"""Only the largest component is kept of classes that are one piece."""

import pytest
from planning_fakes import case, facts

from graftseg.planning.components import component_choices
from graftseg.planning.facts import PieceCount
from graftseg.planning.frame import choose_frame

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


def test_a_supervised_recipe_has_no_pseudo_labels() -> None:
    known = facts(case((32, 32, 32), (1, 1, 1)))
    assert component_choices(known, choose_frame(known), pseudo_labels=False).keys() == {"inference.largest_component"}
