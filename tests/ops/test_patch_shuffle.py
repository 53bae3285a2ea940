"""Patches exchanged within a batch are complete and can be restored."""

from collections import Counter
from itertools import permutations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.profiler import profile

from graftseg.ops.perturbations import draw_permutations, exchange_patches, invert_permutations


@st.composite
def batches(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw images ``(N, C, *space)`` of distinct numbers, and permutations for the cells of a grid."""
    space = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    cells = [draw(st.integers(1, n)) for n in space]
    images, channels = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    shape = (images, channels, *space)
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    return torch.randperm(torch.Size(shape).numel()).view(shape), draw_permutations(cells, images)


@given(batches())
@settings(deadline=None)
def test_inverse_permutation_restores_the_batch(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    batch, order = drawn
    mixed = exchange_patches(batch, order)
    assert torch.equal(exchange_patches(mixed, invert_permutations(order)), batch)
    assert torch.equal(mixed.sort(0).values, batch.sort(0).values)


@given(batches())
@settings(deadline=None)
def test_patches_keep_their_position(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    batch, order = drawn
    mixed, cells = exchange_patches(batch, order), order.shape[:-1]
    for index, place in enumerate(product(*[range(n) for n in batch.shape[2:]])):
        cell = tuple(x * c // n for x, c, n in zip(place, cells, batch.shape[2:], strict=True))
        here, there = (images.flatten(2)[..., index] for images in (mixed, batch))
        assert torch.equal(here, there[order[cell]])


def test_grid_of_the_published_patch() -> None:
    batch = torch.arange(2).view(2, 1, 1, 1, 1).expand(2, 1, 112, 112, 80)
    order = torch.tensor([0, 1]).repeat(4, 4, 1, 1)
    order[1, 2, 0] = torch.tensor([1, 0])
    changed = exchange_patches(batch, order)[0, 0] == 1
    assert changed[28:56, 56:84].all() and int(changed.sum()) == 28 * 28 * 80


def test_permutations_are_uniform() -> None:
    torch.manual_seed(0)
    drawn = draw_permutations((60, 100), 3).view(-1, 3)
    counts = Counter(map(tuple, drawn.tolist()))
    assert counts.keys() == set(permutations(range(3)))
    assert all(count == pytest.approx(1000, abs=5 * 1000**0.5) for count in counts.values())


def test_no_transfer_between_host_and_device() -> None:
    batch = torch.zeros(4, 1, 8, 8)
    with profile() as record:
        order = draw_permutations((4, 4), 4)
        exchange_patches(exchange_patches(batch, order), invert_permutations(order))
    operations = {event.name for event in record.function_events}
    assert "aten::rand" in operations
    assert not {"aten::lift_fresh", "aten::_local_scalar_dense"} & operations


def test_more_cells_than_voxels_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"a grid of \[4, 4\] cells"):
        exchange_patches(torch.zeros(2, 1, 3, 8), draw_permutations((4, 4), 2))
