"""A few attempts of every part of the campaign that kills, damages and resumes."""

from pathlib import Path

import pytest
from part import Part

from campaign import PARTS, TITLES, page
from markdown_pages import DOCS, tables

SMALL = {"ranks": 3, "kills": 4, "damage": 60, "flips": 20, "special": 24}
"""Numbers of attempts in this test."""
NAMES = ["kills", "saves", "predictions", "preparations", "annotations", "damage", "flips", "ranks", "special"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_promises_are_kept(name: str, tmp_path: Path) -> None:
    attack, _ = PARTS[name]
    part = attack(tmp_path, 1, SMALL.get(name, 10))
    assert part.name == TITLES[name] and part.failures == [] and part.tried >= min(SMALL.get(name, 1), 10)


RUN = "abc123 | 2026-01-02"


def test_the_page_keeps_the_rows_of_other_parts() -> None:
    first, second = Part("soak", "holds", 3), Part("bombs", "holds", 5, ["failed"], {"rounds": "2"}, {"time": (2, "s")})
    before = page([first, second], 0, RUN)
    assert f"| soak | holds | 3 | 3 | {RUN} |\n" in before and f"| bombs | holds | 5 | 4 | {RUN} |\n" in before
    assert "\n- bombs: rounds 2; time 2.0 s\n" in before and "| archives | | never run | | | |\n" in before
    again = page([Part("soak", "holds", 4)], 0, "def456 | 2026-01-03", before.replace("| archives |", "| other |"))
    assert again == before.replace(
        f"| soak | holds | 3 | 3 | {RUN} |", "| soak | holds | 4 | 4 | def456 | 2026-01-03 |"
    )


def test_every_part_has_a_row() -> None:
    rows = tables(DOCS / "explanation" / "reliability.md")["Reliability"]
    assert TITLES.keys() == PARTS.keys() and [row[0] for row in rows] == list(TITLES.values())


def test_notes_and_peaks_of_several_processes_are_kept() -> None:
    one, other = (
        Part("a", "holds", 1, peaks={"memory": (3.4, "MiB")}),
        Part("a", "holds", 2, ["failed"], {"formats": "5"}),
    )
    other.measure("memory", 8.6, "MiB")
    other.measure("memory", 7, "MiB")
    other.measure("slowest", 0.26, "s")
    one.add(other)
    assert (one.tried, one.kept) == (3, 2) and one.shown_notes == ["formats 5", "memory 9 MiB", "slowest 0.3 s"]
