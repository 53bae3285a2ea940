"""A few attempts of every part of the campaign that kills, damages and resumes."""

from pathlib import Path

import pytest
from part import Part

from campaign import PARTS, page

SMALL = {"ranks": 3, "kills": 4, "damage": 50, "flips": 20}
"""Numbers of attempts in this test."""
NAMES = ["kills", "saves", "predictions", "preparations", "annotations", "damage", "flips", "ranks"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_promises_are_kept(name: str, tmp_path: Path) -> None:
    attack, _ = PARTS[name]
    part = attack(tmp_path, 1, SMALL.get(name, 10))
    assert part.failures == [] and part.tried >= min(SMALL.get(name, 1), 10)


def test_the_page_keeps_the_counts_of_other_parts() -> None:
    first, second = Part("a", "holds", 3), Part("b", "holds", 5, ["failed"], {"time": "2 s"})
    before = page([first, second], 0)
    assert "| a | holds | 3 | 3 |" in before and "| b | holds | 5 | 4 |" in before and "- b: time 2 s" in before
    after = page([Part("a", "holds", 4)], 0, before)
    assert after == before.replace("| a | holds | 3 | 3 |", "| a | holds | 4 | 4 |")
