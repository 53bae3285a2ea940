"""Mirrored order of the cases of a batch, and validation cases of the data set."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from store_fakes import batches_of, build, numbers

from graftseg.core.errors import Code
from graftseg.data.batches import Batches, BatchSettings, training_cases
from user_errors import user_error


def mirrored(folder: Path, cases: int, others: int, **options: Any) -> Batches:
    """Return batches of a store with these numbers of labeled and unlabeled cases."""
    store = build(folder / "s", [(3, 3)] * cases, [(3, 3)] * others, constant=True)
    return batches_of(store, (2, 2), order="mirrored", **options)


def test_half_of_a_batch_follows_the_list_and_half_the_reversed_list(tmp_path: Path) -> None:
    """Four labeled and six unlabeled cases repeat independently. Every stage starts with the first case."""
    batches = mirrored(tmp_path, 4, 6, labeled=4, unlabeled=4)
    for stage in range(2):
        shown = [batches.at(stage, step) for step in range(4)]
        labeled = [numbers(batch.labeled.images) for batch in shown]
        assert labeled == [[1, 2, 4, 3], [3, 4, 2, 1], [1, 2, 4, 3], [3, 4, 2, 1]]
        assert [numbers(batch.unlabeled) for batch in shown] == [
            [101, 102, 106, 105],
            [103, 104, 104, 103],
            [105, 106, 102, 101],
            [101, 102, 106, 105],
        ]


@given(
    labeled=st.integers(1, 9),
    unlabeled=st.integers(1, 9),
    halves=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    seed=st.integers(0, 9),
)
@settings(deadline=None, max_examples=12)
def test_a_case_always_has_the_same_partner(
    tmp_path_factory: pytest.TempPathFactory, labeled: int, unlabeled: int, halves: tuple[int, int], seed: int
) -> None:
    sizes = {"labeled": 2 * halves[0], "unlabeled": 2 * halves[1]}
    batches = mirrored(tmp_path_factory.mktemp("stores"), labeled, unlabeled, seed=seed, **sizes)
    seen: dict[str, list[int]] = {"labeled": [], "unlabeled": []}
    for step in range(2 * max(labeled, unlabeled)):
        batch = batches.at(1, step)
        for name, first, count, shown in (
            ("labeled", 1, labeled, numbers(batch.labeled.images)),
            ("unlabeled", 101, unlabeled, numbers(batch.unlabeled)),
        ):
            forth, back = shown[: len(shown) // 2], shown[len(shown) // 2 :]
            assert [f + b for f, b in zip(forth, back, strict=True)] == [2 * first + count - 1] * len(forth)
            seen[name] += forth
    for name, first, count in (("labeled", 1, labeled), ("unlabeled", 101, unlabeled)):
        assert seen[name] == [first + place % count for place in range(len(seen[name]))], "one after the other"


def test_mirrored_names(tmp_path: Path) -> None:
    batches = mirrored(tmp_path, 4, 6, labeled=2, unlabeled=2)
    assert batches.names_at(0, 1) == ["case002", "case003", "case102", "case105"]
    assert batches.names_at(0, 1, unlabeled=False) == ["case002", "case003"]


@pytest.mark.parametrize("odd", [{"labeled": 3}, {"unlabeled": 1}])
def test_mirrored_order_needs_even_numbers(odd: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="order: mirrored"):
        BatchSettings.model_validate({"patch": (4, 4), "order": "mirrored", **odd})
    assert BatchSettings(patch=(4, 4), order="mirrored", labeled=2, unlabeled=0).order == "mirrored"


@pytest.mark.parametrize(
    ("limits", "labeled", "unlabeled", "validation"),
    [
        ({}, [1, 2, 3], [101], [201, 202]),
        ({"labeled_cases": 1}, [1], [2, 3, 101], [201, 202]),
        ({"labeled_cases": 1, "validation_cases": 1}, [1], [2, 101], [3, 201, 202]),
    ],
)
def test_validation_cases_of_the_data_set(
    tmp_path: Path, limits: dict[str, int], labeled: list[int], unlabeled: list[int], validation: list[int]
) -> None:
    store = build(tmp_path / "s", [(4, 4)] * 3, [(4, 4)], validation=[(4, 4)] * 2)
    cases = training_cases(store, BatchSettings.model_validate({"patch": (4, 4), **limits}))
    names = [[int(case.name[4:]) for case in role] for role in (cases.labeled, cases.unlabeled, cases.validation)]
    assert names == [labeled, unlabeled, validation]


def test_validation_cases_do_not_count_as_labeled(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(4, 4)] * 2, validation=[(4, 4)] * 2)
    with user_error(Code.TOO_FEW_CASES, store.path, "only 2 labeled"):
        batches_of(store, (4, 4), labeled_cases=3)
