import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftseg.data.labels import Renumbering, renumber

NAMED = {0: "background", 1: "liver"}


def maps(*values: set[int]) -> list[dict[int, int]]:
    return [dict.fromkeys(sorted(own), 5) for own in values]


def test_listed_classes_keep_names_and_order() -> None:
    found = renumber({0: "background", 2: "liver", 5: "tumour"}, maps({0, 2}, {0, 5}))
    assert found == Renumbering({0: 0, 2: 1, 5: 2}, {0: "background", 1: "liver", 2: "tumour"})
    assert found.changes == {2: 1, 5: 2}


def test_unlisted_values_are_named_by_their_old_value() -> None:
    found = renumber({}, maps({0, 2}, {0, 5}))
    assert found == Renumbering({0: 0, 2: 1, 5: 2}, {0: "background", 1: "label 2", 2: "label 5"})


@pytest.mark.parametrize("classes", [{}, NAMED])
@pytest.mark.parametrize("found", [maps({0, 255}), maps({0, 255}, {0, 1}, {0}), maps({255}, {0, 255})])
def test_a_mask_of_0_and_255(classes: dict[int, str], found: list[dict[int, int]]) -> None:
    assert renumber(classes, found) == Renumbering({0: 0, 1: 1, 255: 1}, {})


@pytest.mark.parametrize(
    ("classes", "found", "word"),
    [
        ({}, maps({0, 1, 255}), "255 occurs with other label values"),
        ({}, maps({0, 1, 2}, {0, 2, 255}), "255 probably means 1"),
        (NAMED, maps({0, 1}, {0, 1}, {0, 255}, {0, 7}), "the label value 7 has no class"),
        ({}, maps({0, 2}, {0, 255}), "255 occurs with other label values"),
        (NAMED, maps({0, 1, 255}), "the label value 255 has no class"),
        (NAMED, maps({0, 7}), "the label value 7 has no class"),
        ({0: "background", 3: "x"}, maps({0, 3, 4}), "the label value 4 has no class"),
    ],
)
def test_ambiguous_values_are_explained(classes: dict[int, str], found: list[dict[int, int]], word: str) -> None:
    assert str(renumber(classes, found)).startswith(word)


@pytest.mark.parametrize(("classes", "found"), [({}, maps({0, 1, 2})), ({}, []), (NAMED, maps({0}))])
def test_consecutive_values_are_unchanged(classes: dict[int, str], found: list[dict[int, int]]) -> None:
    assert renumber(classes, found) is None


@given(st.sets(st.integers(1, 254), min_size=1, max_size=9))
def test_new_values_count_from_0_in_the_order_of_the_old(values: set[int]) -> None:
    found = renumber({}, maps({0, *values}))
    if values == set(range(1, len(values) + 1)):
        assert found is None
        return
    assert isinstance(found, Renumbering)
    assert [found.values[old] for old in sorted({0, *values})] == list(range(len(values) + 1))
