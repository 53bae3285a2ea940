from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from graftseg.core.colors import COLORS, color_of
from graftseg.reporting.pictures import rgb_table

Vector = npt.NDArray[np.float64]

# Simulation of full color blindness in linear RGB (Machado, Oliveira and Fernandes, 2009).
SIGHTS = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ.sum(axis=1)


def linear(color: str) -> Vector:
    c = np.frombuffer(bytes.fromhex(color[1:]), np.uint8) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: Vector) -> Vector:
    t = TO_XYZ @ rgb.clip(0, 1) / WHITE
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHTS)
def test_colors_are_distinguishable(sight: str) -> None:
    seen = [lab(SIGHTS[sight] @ linear(color)) for color in COLORS]
    assert len(seen) == 12
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 25


def test_table_and_names_agree_and_wrap_around() -> None:
    table = rgb_table(15)
    assert table.shape == (15, 3)
    assert table[0].tolist() == [0, 0, 0]
    assert table[1].tolist() == [0xE6, 0x9F, 0x00]
    assert table[13].tolist() == table[1].tolist()
    assert color_of(13) == color_of(1)
