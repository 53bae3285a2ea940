"""Growth of memory over many steps."""

from pathlib import Path

import pytest
from soak import growth_per_1000, soak


def test_growth() -> None:
    steps = list(range(100, 1300, 100))
    assert growth_per_1000(steps, [50 + step / 500 for step in steps]) == pytest.approx(2)
    assert growth_per_1000(steps, [50, 90, *[50] * 10]) == 0


@pytest.mark.slow
def test_soak(tmp_path: Path) -> None:
    part = soak(tmp_path, seed=0, count=600)
    assert part.tried >= 8 and [one for one in part.failures if "open files" in one] == []
