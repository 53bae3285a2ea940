from dataclasses import replace
from pathlib import Path

import pytest
from check_fakes import SHAPE, check, image, label, put

from graftseg.data.checks.consistency import offset_findings
from graftseg.data.checks.shift import compare_splits
from graftseg.data.fingerprint import CaseFingerprint, Fingerprint
from graftseg.data.layouts import read_layout

CASE = CaseFingerprint("", "labeled", SHAPE, (1, 1, 1), "RAS", (), (0.0,), (1.0,), {}, "")


def scans(*ends: tuple[float, float]) -> list[CaseFingerprint]:
    return [
        replace(CASE, name=str(number), percentiles=((low, 0.0, 0.0, 0.0, 0.0, 0.0, high),))
        for number, (low, high) in enumerate(ends)
    ]


def test_scans_without_intercept_are_reported(tmp_path: Path) -> None:
    for number in range(5):
        ct = image(number)
        ct[:8] -= 1100
        put(tmp_path, f"imagesTr/l{number}", (ct + 1024).clip(0) if number == 3 else ct)
        put(tmp_path, f"labelsTr/l{number}", label(1, 1))
    (finding,) = [finding for finding in check(read_layout(tmp_path)) if "intercept" in finding.what]
    assert (finding.severity, finding.cases) == ("warning", ("l3",))
    assert finding.size.startswith("lowest value 0, but -10")
    assert "1024" in finding.remedy


@pytest.mark.parametrize(
    ("ends", "named"),
    [
        ([(-1000, 500)] * 2 + [(24, 1500)], ["2"]),
        ([(-1000, 500)] * 2 + [(0, 1500)] * 2, []),
        ([(-1000, 500)] * 2 + [(-90, 300)], []),
        ([(-1000, 500)] * 2 + [(-300, 1500)], []),
        ([(0, 1500)] * 3, []),
        ([], []),
    ],
)
def test_most_scans_must_contain_air(ends: list[tuple[float, float]], named: list[str]) -> None:
    assert [finding.where for finding in offset_findings(scans(*ends))] == named


def test_the_comparison_mentions_scans_without_intercept() -> None:
    cases = scans(*[(-1000, 500)] * 8, (0, 1500))
    summaries = Fingerprint((*cases[:4], *(replace(case, split="unlabeled") for case in cases[4:])))
    found = compare_splits(summaries)
    assert (found.kind, found.sentence) == (
        "alike",
        "Spacing and intensities are similar, except for 1 scan that may lack a rescale intercept.",
    )


def test_channels_are_checked_separately() -> None:
    cases = [
        replace(case, mean=(0.0, 0.0), percentiles=((0.0,) * 6 + (2000.0,), *case.percentiles))
        for case in scans((-1000, 500), (-990, 500), (0, 1500))
    ]
    (finding,) = offset_findings(cases)
    assert (finding.where, finding.size) == ("2", "lowest value 0, but -995 in other scans in channel 0001")
