from dataclasses import replace
from math import log, sqrt

import pytest

from graftseg.core.types import Split
from graftseg.data.checks.shift import compare_splits, shift_findings, spacing_shift
from graftseg.data.fingerprint import CaseFingerprint, Fingerprint


def case(split: Split, *, centre: float = 0.0, scale: float = 7.0, spacing: float = 1.0) -> CaseFingerprint:
    levels = tuple(centre + scale * step for step in range(-3, 4))
    size, steps = (20, 20), (spacing, 1.0)
    return CaseFingerprint("x", split, size, steps, "RA", (levels,), (centre,), (2 * scale,), {}, "")


def together(labeled: list[CaseFingerprint], unlabeled: list[CaseFingerprint]) -> Fingerprint:
    return Fingerprint((*labeled, *(replace(one, split="unlabeled") for one in unlabeled)))


def test_spacing_shift_by_hand() -> None:
    labeled = [case("labeled", spacing=step) for step in (1.0, 1.0, 2.0)]
    unlabeled = [case("unlabeled", spacing=4.0)] * 2
    # the medians differ by log 4, and one of the five cases differs by log 2 from the median of its group
    expected = log(4) / (log(1.1) + 5 * log(2) / 3 * sqrt(1 / 3 + 1 / 2))
    assert spacing_shift(labeled, unlabeled) == pytest.approx((expected, 0.0))
    assert spacing_shift(unlabeled, labeled) == pytest.approx((expected, 0.0))


def test_test_scans_are_compared_with_labeled_scans() -> None:
    summaries = Fingerprint((*[case("labeled")] * 3, *[case("test", spacing=3.0)] * 3))
    assert compare_splits(summaries).kind == "alone"
    found = compare_splits(summaries, "test")
    assert (found.kind, found.other) == ("apart", "test")
    (finding,) = shift_findings(summaries, found)
    assert (finding.where, finding.size) == ("labeled and test scans", "median 1.00 mm and 3.00 mm")
    assert found.to_json()["test_spacing"] == (3.0, 1.0) and "unlabeled_spacing" not in found.to_json()
    alike = compare_splits(Fingerprint((*[case("labeled")] * 3, *[case("test")] * 3)), "test")
    assert alike.kind == "alike" and "test scans" in alike.sentence


def test_ten_percent_of_the_spacing_is_no_shift() -> None:
    near, far = (spacing_shift([case("labeled")] * 3, [case("unlabeled", spacing=step)] * 3) for step in (1.09, 1.11))
    assert near[0] < 1 < far[0]


def test_similar_groups() -> None:
    found = compare_splits(together([case("labeled")] * 3, [case("labeled")] * 3))
    assert (found.kind, found.stored, found.standardised, found.spacing) == ("alike", 0, 0, (0, 0))
    assert found.sentence.startswith("Labeled and unlabeled scans can be used together")


def test_too_few_cases() -> None:
    found = compare_splits(together([case("labeled")] * 2, [case("labeled")] * 40))
    assert found.kind == "too few"
    assert found.sentence.endswith("2 labeled and 40 unlabeled.")


def test_two_labeled_scans_are_enough_for_a_large_difference() -> None:
    summaries = together([case("labeled")] * 2, [case("labeled", spacing=3.0)] * 40)
    found = compare_splits(summaries)
    assert found.kind == "apart"
    assert found.sentence.endswith("their spacing differs.")
    (finding,) = shift_findings(summaries, found)
    assert (finding.severity, finding.what) == ("warning", "labeled and unlabeled scans differ in spacing")
    assert finding.size == "median 1.00 mm and 3.00 mm"


def test_a_difference_in_brightness_only() -> None:
    found = compare_splits(together([case("labeled")] * 3, [case("labeled", centre=900)] * 3))
    assert found.kind == "scaled"
    assert "brightness" in found.sentence


def test_another_contrast() -> None:
    odd = replace(case("labeled"), percentiles=((-90.0, 0.0, 0.0, 0.0, 0.0, 0.0, 90.0),))
    summaries = together([case("labeled")] * 3, [odd] * 3)
    found = compare_splits(summaries)
    assert found.kind == "apart"
    assert "their contrast differs" in found.sentence
    (finding,) = shift_findings(summaries, found)
    assert "differ in contrast" in finding.what


def test_three_cases_are_too_few_for_a_finding() -> None:
    summaries = together([case("labeled")], [case("labeled", centre=900)] * 2)
    assert list(shift_findings(summaries, compare_splits(summaries))) == []


def test_nothing_to_compare() -> None:
    alone = compare_splits(together([case("labeled")] * 3, []))
    assert (alone.kind, alone.sentence) == ("alone", "Nothing to compare: 3 labeled and 0 unlabeled scans.")
    volume = replace(case("unlabeled"), shape=(4, 4, 4), spacing=(1, 1, 1), orientation="RAS")
    mixed = together([case("labeled")] * 3, [volume] * 3)
    assert compare_splits(mixed).kind == "apart"
    assert "3 of 6 scans, such as x, have" in compare_splits(mixed).sentence
    assert list(shift_findings(mixed, compare_splits(mixed))) == []


def test_one_scan_with_other_channels_is_named_once() -> None:
    odd = replace(case("labeled"), name="odd", mean=(0.0, 0.0))
    scans = [odd, *[case("labeled")] * 3, *[case("unlabeled")] * 3, *[case("test")] * 3]
    sentences = {compare_splits(Fingerprint(tuple(scans)), other).sentence for other in ("unlabeled", "test")}
    (sentence,) = sentences
    assert "odd has another number of axes or channels" in sentence
