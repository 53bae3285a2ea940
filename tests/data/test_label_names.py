import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftseg.data.grouping import cases_of_name, match_labels, most_similar_case, without_label_ending
from loops import for_each

NAMES = st.lists(st.sampled_from(["a", "A", "a_seg", "A_Seg", "a.label", "b", "b-mask", "B", "gt"]), unique=True)


@for_each("label", ["p_01", "P_01", "p_01.seg", "p_01_seg", "p_01_label", "P_01-Labels", "p_01 mask", "p_01_gt"])
def test_certain_matches(label: str) -> None:
    assert match_labels([label], ["p_01", "p_02"]) == {label: "p_01"}


@pytest.mark.parametrize("label", ["p_1", "p_01_liver", "p_01_seg2", "seg", "p_01seg"])
def test_other_names_do_not_match(label: str) -> None:
    assert match_labels([label], ["p_01", "p_02"]) == {}


def test_equal_names_count_first() -> None:
    assert match_labels(["a", "a_seg"], ["a", "a_seg"]) == {"a": "a", "a_seg": "a_seg"}
    assert match_labels(["A", "a"], ["a", "A"]) == {"A": "A", "a": "a"}
    assert match_labels(["a", "a_seg"], ["a"]) == {"a": "a"}
    assert match_labels(["a_seg"], ["a", "A"]) == {}
    assert match_labels(["a_seg", "a_label"], ["a"]) == {}


@given(labels=NAMES, cases=NAMES)
def test_no_case_has_two_labels_and_every_match_has_the_same_name(labels: list[str], cases: list[str]) -> None:
    matched = match_labels(labels, cases)
    assert len({*matched.values()}) == len(matched)
    for label, case in matched.items():
        assert case in cases_of_name(label, cases)
    assert all(matched[label] == label for label in labels if label in cases)
    assert match_labels(labels[::-1], cases[::-1]) == matched


def test_similar_names_have_the_same_numbers() -> None:
    assert most_similar_case("Liver-1_seg", ["liver_01", "liver_02", "spleen_01"]) == "liver_01"
    assert most_similar_case("liver_3", ["liver_01", "liver_02"]) is None
    assert most_similar_case("tomography", ["mri"]) is None


def test_endings() -> None:
    assert [without_label_ending(name) for name in ("a.seg", "a_LABEL", "label", "a_label_x")] == [
        "a",
        "a",
        "label",
        "a_label_x",
    ]
