"""Copy-paste masks: sizes, positions and numbers of voxels; and mixing by a mask."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.profiler import profile

from graftseg.ops.masks import (
    Box,
    ContactSlab,
    RandomCubes,
    box_mask,
    box_size,
    copy_paste_mask,
    mix,
)

LA, ACDC, PANCREAS = (112, 112, 80), (256, 256), (96, 96, 96)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Draw a space of one to three axes, and the size and corner of a box inside it."""
    space = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    size = tuple(draw(st.integers(1, n)) for n in space)
    corner = tuple(draw(st.integers(0, n - s)) for n, s in zip(space, size, strict=True))
    return space, size, corner


def corner_of(M: Tensor) -> tuple[int, ...]:
    return tuple(int(indices.min()) for indices in torch.nonzero(~M, as_tuple=True))


def corners(space: Sequence[int], beta: float, draws: int) -> Counter[tuple[int, ...]]:
    torch.manual_seed(0)
    return Counter(corner_of(copy_paste_mask(space, beta)) for _ in range(draws))


@pytest.mark.parametrize(
    ("beta", "size"),
    [(1 / 3, (37, 37, 26)), (1 / 2, (56, 56, 40)), (2 / 3, (74, 74, 53)), (5 / 6, (93, 93, 66))],
)
def test_box_sizes_of_the_ablation(beta: float, size: tuple[int, ...]) -> None:
    assert box_size(LA, beta) == size


def test_exact_product_is_not_rounded_down() -> None:
    assert 100 * 0.29 < 29
    assert box_size([100], 0.29) == (29,)


@given(st.integers(1, 50), st.integers(1, 100), st.data())
@settings(deadline=None)
def test_box_size_is_the_floor_of_the_exact_product(n: int, divisor: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(1, divisor))
    assert box_size([n], part / divisor) == (max(1, n * part // divisor),)


def test_box_has_at_least_one_voxel() -> None:
    assert box_size((1, 2, 9), 0.1) == (1, 1, 1)


@pytest.mark.parametrize(("space", "zeros"), [(LA, 290_228), (ACDC, 28_900), (PANCREAS, 262_144)])
def test_zero_voxels_of_the_published_settings(space: tuple[int, ...], zeros: int) -> None:
    torch.manual_seed(0)
    M = copy_paste_mask(space, 2 / 3)
    assert M.dtype == torch.bool
    assert M.shape == space
    assert int((~M).sum()) == zeros


@given(boxes())
@settings(deadline=None)
def test_box_mask_equals_brute_force(box: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> None:
    space, size, corner = box
    expected = np.ones(space, dtype=bool)
    for offset in product(*[range(s) for s in size]):
        expected[tuple(c + o for c, o in zip(corner, offset, strict=True))] = False
    np.testing.assert_array_equal(box_mask(space, torch.tensor(corner), size).numpy(), expected)


@pytest.mark.parametrize(
    ("space", "last"), [(LA, (37, 37, 26)), (ACDC, (85, 85)), (PANCREAS, (31, 31, 31))], ids=["LA", "ACDC", "Pancreas"]
)
@pytest.mark.parametrize("highest", [False, True])
def test_first_and_last_starts_of_the_published_settings(
    monkeypatch: pytest.MonkeyPatch, space: tuple[int, ...], last: tuple[int, ...], highest: bool
) -> None:
    extreme = 1 - 2**-24 if highest else 0.0  # the largest float32 below one
    monkeypatch.setattr(torch, "rand", lambda n, device: torch.full((n,), extreme))
    assert corner_of(copy_paste_mask(space, 2 / 3)) == (last if highest else (0,) * len(space))


def test_all_starts_except_the_last_are_equally_likely() -> None:
    space, beta, draws = (4, 9), 2 / 3, 2000
    assert box_size(space, beta) == (2, 6)
    counts = corners(space, beta, draws)
    assert counts.keys() == set(product(range(2), range(3)))
    expected = draws / 6
    for count in counts.values():
        assert count == pytest.approx(expected, abs=5 * expected**0.5)


def test_box_as_large_as_an_axis_starts_at_0() -> None:
    assert corners((1, 4), 1 / 2, 20).keys() == {(0, 0), (0, 1)}


def test_same_seed_draws_the_same_mask() -> None:
    masks = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        masks.append(copy_paste_mask(LA, 2 / 3))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("draw", [copy_paste_mask, RandomCubes().draw, ContactSlab().draw])
def test_no_transfer_between_host_and_device(draw: Callable[[Sequence[int], float], Tensor]) -> None:
    with profile() as record:
        draw((6, 6, 4), 2 / 3)
    operations = {event.name for event in record.function_events}
    assert "aten::rand" in operations
    assert not {"aten::lift_fresh", "aten::_local_scalar_dense"} & operations  # torch.tensor(...), .item()


LA_CUBES = RandomCubes(sizes=(25, 25, 17), starts=(11, 11, 8))
LA_SLAB = ContactSlab(axis=2, thickness=23, starts=56)


@pytest.mark.parametrize(
    ("mask", "space", "zeros"),
    [
        (Box(), LA, 74 * 74 * 53),
        (LA_CUBES, LA, 286_875),
        (LA_SLAB, LA, 288_512),
        (Box(), ACDC, 170 * 170),
        (RandomCubes(), ACDC, 9 * 56 * 56),
        (ContactSlab(), ACDC, 113 * 256),
    ],
    ids=lambda value: value.name if isinstance(value, Box | RandomCubes | ContactSlab) else None,
)
def test_zero_voxels_of_the_published_masks(
    mask: Box | RandomCubes | ContactSlab, space: tuple[int, ...], zeros: int
) -> None:
    torch.manual_seed(0)
    mask.check(space, 2 / 3)
    M = mask.draw(space, 2 / 3, "cpu")
    assert (M.dtype, M.shape) == (torch.bool, space)
    assert int((~M).sum()) == zeros


def test_default_cubes_and_slab_have_about_the_volume_of_the_box() -> None:
    assert int((~RandomCubes().draw(LA, 2 / 3)).sum()) == 27 * 24 * 24 * 17
    assert int((~ContactSlab(axis=2).draw(LA, 2 / 3)).sum()) == 112 * 112 * 23


@pytest.mark.parametrize(
    ("space", "mask", "last"),
    [(LA, LA_CUBES, (10, 10, 7)), (ACDC, RandomCubes(), (28, 28))],
    ids=["LA", "ACDC"],
)
@pytest.mark.parametrize("highest", [False, True])
def test_first_and_last_positions_of_cubes(
    monkeypatch: pytest.MonkeyPatch,
    space: tuple[int, ...],
    mask: RandomCubes,
    last: tuple[int, ...],
    highest: bool,
) -> None:
    extreme = 1 - 2**-24 if highest else 0.0
    monkeypatch.setattr(torch, "rand", lambda *sizes, device: torch.full(sizes, extreme))
    M = mask.draw(space, 2 / 3, "cpu")
    cells = [n // 3 for n in space]
    for corner in product(range(3), repeat=len(space)):
        cell = M[tuple(slice(k * n, (k + 1) * n) for k, n in zip(corner, cells, strict=True))]
        assert corner_of(cell) == (last if highest else (0,) * len(space))


@given(st.lists(st.integers(1, 13), min_size=1, max_size=3), st.floats(0.1, 0.9), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_every_cell_has_one_cube(space: list[int], beta: float, seed: int) -> None:
    torch.manual_seed(seed)
    M = RandomCubes().draw(space, beta)
    cells = [max(1, n // 3) for n in space]
    size, expected = box_size(cells, beta), torch.ones(tuple(space), dtype=torch.bool)
    for corner in product(*[range(min(3, n)) for n in space]):
        place = tuple(slice(k * n, (k + 1) * n) for k, n in zip(corner, cells, strict=True))
        expected[place] = box_mask(cells, torch.tensor(corner_of(M[place])), size)
    assert torch.equal(M, expected)


def test_cubes_are_drawn_independently() -> None:
    torch.manual_seed(0)
    M = RandomCubes().draw((90,), 1 / 3)
    assert len({corner_of(M[30 * cell : 30 * (cell + 1)]) for cell in range(3)}) == 3


@pytest.mark.parametrize(
    ("space", "mask", "last"), [(LA, LA_SLAB, (0, 0, 55)), (ACDC, ContactSlab(), (142, 0))], ids=["LA", "ACDC"]
)
def test_last_position_of_a_slab(
    monkeypatch: pytest.MonkeyPatch, space: tuple[int, ...], mask: ContactSlab, last: tuple[int, ...]
) -> None:
    monkeypatch.setattr(torch, "rand", lambda n, device: torch.full((n,), 1 - 2**-24))
    assert corner_of(mask.draw(space, 2 / 3, "cpu")) == last


def test_masks_that_do_not_fit_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"a cube of \[4, 4\]"):
        RandomCubes(sizes=(4, 4)).draw((9, 9), 0.5)
    with pytest.raises(ValueError, match=r"a slab of \[5\]"):
        ContactSlab(thickness=5, starts=6).draw((9, 9), 0.5)


def test_background_is_used_where_the_mask_is_1() -> None:
    background, foreground = torch.tensor([[1, 2], [3, 4]]), torch.tensor([[5, 6], [7, 8]])
    M = torch.tensor([[True, False], [False, True]])
    assert mix(background, foreground, M).tolist() == [[1, 6], [7, 4]]


@given(boxes(), st.integers(0, 2**32 - 1), st.sampled_from([torch.float32, torch.int64]))
@settings(deadline=None)
def test_mixing_in_both_directions_keeps_all_voxels(
    box: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], seed: int, dtype: torch.dtype
) -> None:
    space, size, corner = box
    M = box_mask(space, torch.tensor(corner), size)
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(-99, 99, (2, 3, *space), generator=generator).to(dtype) for _ in range(2))
    mixed = mix(a, b, M)
    assert mixed.dtype == dtype
    assert torch.equal(mix(a, a, M), a)
    assert torch.equal(mixed + mix(b, a, M), a + b)
    assert torch.equal(mixed, a * M.to(dtype) + b * (~M).to(dtype))
