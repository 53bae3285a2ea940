"""Classes that only some label maps contain."""

from dataclasses import replace

import pytest
from planning_fakes import CPU, facts, usual

from graftseg.data.pieces import Pieces
from graftseg.planning.components import component_choices
from graftseg.planning.draft import ignored_choices
from graftseg.planning.facts import Facts, PieceCount
from graftseg.planning.frame import choose_frame
from graftseg.planning.method_shares import method_recipe
from graftseg.planning.plans import choose

EVERYWHERE, SOMETIMES, NOWHERE = PieceCount(4, 4), PieceCount(3, 3), PieceCount()


def of_pieces(*pieces: PieceCount) -> Facts:
    """Return the facts about four labeled scans."""
    return facts(*usual(labeled=4), classes=1 + len(pieces), pieces=(PieceCount(), *pieces))


def test_pseudo_labels_of_occasional_classes_are_ignored() -> None:
    known = of_pieces(EVERYWHERE, SOMETIMES, NOWHERE)
    assert known.occasional_classes == (2,)
    plan = choose(known, CPU, minutes=10)
    assert plan.recipe.stages[-1].settings["ignored_classes"] == [2]
    (note,) = (line for line in plan.head if "pseudo-labels are ignored" in line)
    assert "class 2 is in only 3 of 4 label maps" in note


@pytest.mark.parametrize(
    "pieces", [(EVERYWHERE, NOWHERE), (SOMETIMES,), (SOMETIMES, SOMETIMES, NOWHERE)], ids=["none", "only", "all"]
)
def test_no_class_is_ignored(pieces: tuple[PieceCount, ...]) -> None:
    """If all classes are occasional, the unlabeled scans would teach only background."""
    assert ignored_choices(of_pieces(*pieces)) == {}
    plan = choose(of_pieces(*pieces), CPU, minutes=10)
    assert "ignored_classes" not in plan.recipe.stages[-1].settings
    assert not [line for line in plan.head if "pseudo-labels are ignored" in line]


def test_methods_without_the_setting() -> None:
    plan = choose(of_pieces(EVERYWHERE, SOMETIMES), CPU, minutes=10, method="bcp")
    assert "ignored_classes" not in plan.recipe.stages[-1].settings
    supervised = choose(of_pieces(EVERYWHERE, SOMETIMES), CPU, minutes=0.01)
    assert len(supervised.recipe.stages) == 1 and "ignored_classes" not in supervised.recipe.stages[0].settings


def test_a_comparison_of_methods_keeps_the_ignored_classes() -> None:
    plan = choose(of_pieces(EVERYWHERE, SOMETIMES), CPU, minutes=10).recipe
    assert method_recipe(plan, "graft", 500, short=True).stages[-1].settings["ignored_classes"] == [2]


@pytest.mark.parametrize(
    ("sizes", "volume"),
    [
        ([(400,), (1000,), ()], 0.1),  # a quarter of 400 voxels of 1 mm³
        ([(400,), (9000,), ()], 0.1),  # very different sizes
        ([(400,), (), ()], None),  # one label map says nothing about the smallest size
        ([(400,), (1000,), (1000,)], None),  # not occasional
    ],
)
def test_small_components_of_an_occasional_class_are_removed(
    sizes: list[tuple[int, ...]], volume: float | None
) -> None:
    """Also of a class that is one piece, because in a scan without it the largest component is an error, too."""
    pieces = [{1: Pieces(sum(each), len(each), each)} if each else {} for each in sizes]
    cases = [replace(scan, pieces=found) for scan, found in zip(usual(labeled=3, unlabeled=0), pieces, strict=True)]
    count = sum(map(bool, sizes))
    known = facts(*cases, pieces=(NOWHERE, PieceCount(count, count)))
    chosen = component_choices(known, choose_frame(known), pseudo_labels=False)
    removed = chosen.get("inference.min_component_ml.1")
    assert chosen["inference.largest_component"].value is True
    assert (removed and removed.value) == volume
