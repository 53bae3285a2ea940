"""Slices stretched to the patch for a network, and label maps brought back: each voxel reads its nearest."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from graftseg.data.augment import stretching
from graftseg.inference.sliding_window import Segment
from graftseg.recipes.settings import InferenceSettings


@torch.inference_mode()
def stretched_slabs(
    segment: Segment,
    image: Tensor,
    patch: tuple[int, ...],
    settings: InferenceSettings,
    *,
    device: torch.device,
) -> Iterator[tuple[int, Tensor]]:
    """Yield the probabilities of a volume ``(C, X, Y, slices)``: the first slice, and ``(K, n, *patch)``.

    ``settings.windows_per_forward`` slices pass through the network together; only these are moved to ``device``,
    as float32.
    """
    slices = image.movedim(-1, 0)
    for start in range(0, len(slices), settings.windows_per_forward):
        several = slices[start : start + settings.windows_per_forward].to(device).float()
        yield start, segment(stretched(several, patch)).float().movedim(1, 0)


def stretched(values: Tensor, size: Sequence[int]) -> Tensor:
    """The plane of values ``(..., X, Y)`` brought to another size, corners on corners, no value interpolated."""
    scale = stretching(np.array([values.shape[-2:]]), size)[0]
    for dim, count, step in zip((-2, -1), size, scale, strict=True):
        index = (torch.arange(count, dtype=torch.float64) * float(step) + 0.5).floor().long()
        values = values.index_select(dim, index.to(values.device))
    return values
