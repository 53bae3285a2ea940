"""A few attempts of every part of the campaign that kills, damages and resumes."""

from pathlib import Path

import pytest

from campaign import PARTS

SMALL = {"kills": 4, "damage": 50, "flips": 20}
"""Numbers of attempts in this test."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kills", "saves", "predictions", "preparations", "damage", "flips"])
def test_promises_are_kept(name: str, tmp_path: Path) -> None:
    attack, _ = PARTS[name]
    part = attack(tmp_path, 1, SMALL.get(name, 10))
    assert part.failures == [] and part.tried >= min(SMALL.get(name, 1), 10)
