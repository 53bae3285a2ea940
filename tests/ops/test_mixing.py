"""Pairs of images and their weights."""

from typing import get_args

import pytest
import torch

from graftseg.core.types import Labeled
from graftseg.ops.masks import Direction, Mixture, mixtures


def numbered(first: int) -> Labeled:
    """Return four images, which are consecutive numbers. A label is the number plus 100."""
    numbers = torch.arange(first, first + 4)
    return Labeled(numbers, numbers + 100)


def paired(mixture: Mixture) -> tuple[list[int], list[int], tuple[float, float]]:
    return mixture.background.images.tolist(), mixture.foreground.images.tolist(), mixture.weights


EXPECTED = {
    "both": {"in": ([2, 3], [4, 5], (1.0, 0.25)), "out": ([6, 7], [0, 1], (0.25, 1.0))},
    "in": {"in": ([2, 3], [4, 5], (1.0, 0.25))},
    "out": {"out": ([6, 7], [0, 1], (0.25, 1.0))},
    "within": {"labeled": ([0, 1], [2, 3], (1.0, 1.0)), "unlabeled": ([4, 5], [6, 7], (0.25, 0.25))},
    "none": {
        "labeled": ([0, 1, 2, 3], [0, 1, 2, 3], (1.0, 0.0)),
        "unlabeled": ([4, 5, 6, 7], [4, 5, 6, 7], (0.25, 0.0)),
    },
}


@pytest.mark.parametrize("direction", get_args(Direction))
def test_pairs_and_weights(direction: Direction) -> None:
    mixed = mixtures(direction, numbered(0), numbered(4), 0.25)
    assert {name: paired(mixture) for name, mixture in mixed.items()} == EXPECTED[direction]
    for mixture in mixed.values():
        for images in (mixture.background, mixture.foreground):
            assert torch.equal(images.labels, images.images + 100)
