"""The kernels of connected components, on a GPU or in Triton's interpreter.

The interpreter runs programs one after the other, so interactions of programs are tested with a model.
"""

import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from components_reference import largest_component_by_definition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from graftseg.ops.components import device, largest_component_of, largest_components

LabelMaps = npt.NDArray[np.int64]
Joiner = Generator[tuple[int, int | None], int, None]
CLASSES = 4
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")


@pytest.fixture(autouse=True)
def _few_large_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        monkeypatch.setattr(device, "BLOCK", 128)
        monkeypatch.setattr(device, "MERGE_BLOCK", 512)


def by_kernels(labels: LabelMaps, connectivity: int, classes: int = CLASSES) -> LabelMaps:
    return (
        device.largest_components_by_kernels(torch.from_numpy(labels).to(DEVICE), classes, connectivity).cpu().numpy()
    )


def assert_equal_results(labels: LabelMaps, connectivity: int, classes: int = CLASSES) -> None:
    """Assert that kernels, cc3d and scipy agree."""
    kept = by_kernels(labels, connectivity, classes)
    assert kept.dtype == labels.dtype
    for sample, result in zip(labels, kept, strict=True):
        np.testing.assert_array_equal(result, largest_component_of(sample, classes, connectivity))
        np.testing.assert_array_equal(result, largest_component_by_definition(sample, classes, connectivity))


def spiral(size: int) -> LabelMaps:
    """Return a line of one pixel width that winds inwards, with a gap of one pixel."""
    picture = np.zeros((size, size), dtype=np.int64)
    row, column, step_row, step_column = 0, 0, 0, 1
    turns = 0
    while turns < 2:
        picture[row, column] = 1
        ahead, beyond = (row + step_row, column + step_column), (row + 2 * step_row, column + 2 * step_column)
        inside = 0 <= ahead[0] < size and 0 <= ahead[1] < size
        free = not (0 <= beyond[0] < size and 0 <= beyond[1] < size) or picture[beyond] == 0
        if inside and free:
            (row, column), turns = ahead, 0
        else:
            step_row, step_column, turns = step_column, -step_row, turns + 1
    return picture


def snake(shape: tuple[int, int, int]) -> LabelMaps:
    """Return a line that fills every second row of every second slice, back and forth."""
    volume = np.zeros(shape, dtype=np.int64)
    volume[::2, ::2] = 1
    volume[::2, 1::4, -1] = 1
    volume[::2, 3::4, 0] = 1
    volume[1::2, 0, 0] = 1
    return volume


def checkerboard(shape: tuple[int, ...]) -> LabelMaps:
    return np.asarray(np.indices(shape).sum(0) % 2, dtype=np.int64)


SHAPES: dict[str, Callable[[], LabelMaps]] = {
    "spiral": lambda: spiral(17)[None],
    "mirrored spiral": lambda: spiral(17)[None, ::-1, ::-1].copy(),
    "snake": lambda: snake((5, 7, 9))[None],
    "checkerboard": lambda: checkerboard((12, 13))[None],
    "checkerboard of cubes": lambda: checkerboard((5, 6, 7))[None],
    "two boards": lambda: 1 + np.stack([checkerboard((7, 8)), 1 - checkerboard((7, 8))]),
    "one voxel": lambda: np.ones((1, 1, 1, 1), dtype=np.int64),
    "a voxel each": lambda: np.ones((5, 1, 1), dtype=np.int64),
    "all foreground": lambda: np.ones((2, 4, 6, 7), dtype=np.int64),
    "all another class": lambda: np.full((2, 9, 20), CLASSES - 1),
    "empty": lambda: np.zeros((2, 4, 6, 7), dtype=np.int64),
    "empty and full": lambda: np.stack([np.zeros((6, 7), dtype=np.int64), np.ones((6, 7), dtype=np.int64)]),
    "a comb": lambda: np.pad(np.tile([[1, 0]], (9, 8)), ((0, 1), (0, 0)), constant_values=1)[None],
    "stripes": lambda: np.tile(np.array([[1], [2], [3]]), (4, 9))[None],
    "values that are no class": lambda: np.array([[[-1, 1, 4], [9, 2**40, 1], [-(2**40), 3, 3]]]),
}


@needs_triton
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_with_long_components(name: str) -> None:
    labels = SHAPES[name]()
    for connectivity in range(1, labels.ndim):
        assert_equal_results(labels, connectivity)


@needs_triton
@pytest.mark.parametrize("shape", [(2, 12, 15), (2, 5, 6, 7), (1, 1, 40), (1, 40, 1), (2, 1, 5, 9), (2, 9, 1, 5)])
@pytest.mark.parametrize("density", [0.15, 0.4, 0.7, 1.0])
def test_random_fields(shape: tuple[int, ...], density: float) -> None:
    rng = np.random.default_rng(int(density * 100) + len(shape))
    mask = rng.random(shape) < density
    for connectivity in range(1, len(shape)):
        assert_equal_results(mask.astype(np.int64), connectivity, 2)
        assert_equal_results(mask * rng.integers(1, CLASSES, shape), connectivity)


@needs_triton
@pytest.mark.parametrize(("block", "merge_block"), [(16, 16), (32, 64), (1024, 128)])
def test_runs_that_cross_blocks(block: int, merge_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "BLOCK", block)
    monkeypatch.setattr(device, "MERGE_BLOCK", merge_block)
    smooth = ndimage.gaussian_filter(np.random.default_rng(block).random((2, 3, 50)), (0, 0.5, 2))
    labels = (smooth > np.median(smooth)).astype(np.int64)
    labels[0, 0] = 1
    assert_equal_results(labels, 1)
    assert_equal_results(labels, 2)


@needs_triton
@given(
    st.one_of(
        arrays(np.int64, st.tuples(*[st.integers(1, 5)] * 3), elements=st.integers(-1, CLASSES)),
        arrays(np.int64, st.tuples(st.just(1), *[st.integers(1, 4)] * 3), elements=st.integers(0, 2)),
    ),
    st.integers(1, 3),
)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_label_maps(labels: LabelMaps, connectivity: int) -> None:
    assert_equal_results(labels, min(connectivity, labels.ndim - 1))


@needs_triton
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_dtypes_and_memory_orders(dtype: torch.dtype) -> None:
    labels = torch.randint(0, 5, (2, 6, 7), generator=torch.Generator().manual_seed(0)).to(dtype).to(DEVICE)
    turned = labels.transpose(1, 2).contiguous().transpose(1, 2)
    kept = device.largest_components_by_kernels(turned, 3, 2)
    assert kept.dtype == dtype
    assert torch.equal(kept, largest_components(labels.cpu(), 3, 2).to(DEVICE))


@needs_triton
def test_maximum_number_of_classes() -> None:
    labels = np.arange(256).reshape(1, 16, 16).repeat(2, axis=2)
    labels[0, 0, 0] = 255
    kept = by_kernels(labels, 2, 256)
    labels[0, 0, 0] = 0
    np.testing.assert_array_equal(kept, labels)


def test_too_many_voxels_are_rejected() -> None:
    labels = torch.empty((2**16, 2**15, 1), dtype=torch.uint8, device="meta")
    with pytest.raises(ValueError, match="2147483648 voxels"):
        device.largest_components_by_kernels(labels, 2, 1)


def joiner(first: int, second: int) -> Joiner:
    """Model a lane of ``merge``: it requests to read or lower a parent and receives the previous value."""
    high, low = max(first, second), min(first, second)
    while high != low:
        parent = yield high, None
        if parent > low:
            parent = yield high, low
        if parent in (high, low):
            return
        high, low = max(parent, low), min(parent, low)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_concurrent_joins_with_stale_reads_give_one_tree_per_component(data: st.DataObject) -> None:
    voxels = data.draw(st.integers(2, 12))
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, voxels - 1)] * 2), min_size=1, max_size=16))
    history = [[voxel] for voxel in range(voxels)]
    asked: list[tuple[Joiner, tuple[int, int | None]]] = []
    for lane in (joiner(*pair) for pair in pairs):
        asked += [(lane, question) for question in [next(lane, None)] if question]
    while asked:
        lane, (voxel, low) = asked.pop(data.draw(st.integers(0, len(asked) - 1)))
        answer = history[voxel][-1]
        if low is None:
            answer = data.draw(st.sampled_from(history[voxel]))
        elif low < answer:
            history[voxel].append(low)
        try:
            asked.append((lane, lane.send(answer)))
        except StopIteration:
            continue
    roots = np.array([values[-1] for values in history])
    for _ in range(voxels):
        roots = roots[roots]
    first, second = np.array(pairs).T
    _, component = connected_components(
        coo_array((np.ones(len(pairs)), (first, second)), shape=(voxels, voxels)), False
    )
    roots_expected = np.array([np.flatnonzero(component == c)[0] for c in component])
    np.testing.assert_array_equal(roots, roots_expected)


def blob_and_specks(shape: tuple[int, ...], classes: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    smooth = ndimage.gaussian_filter(rng.random(shape), (0, *[6] * (len(shape) - 1)))
    labels = np.digitize(smooth, np.quantile(smooth, np.linspace(0.7, 1, classes)[:-1]))
    specks = rng.random(shape) < 0.002
    return torch.from_numpy(np.where(specks, rng.integers(1, classes, shape), labels))


@contextmanager
def no_synchronization() -> Iterator[None]:
    """Raise an error on synchronization with the device."""
    with warnings.catch_warnings():
        # torch warns that it does not detect every synchronization
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@needs_gpu
@needs_triton
@pytest.mark.parametrize(("shape", "classes"), [((4, 112, 112, 80), 2), ((12, 256, 256), 4), ((2, 96, 97, 99), 16)])
def test_gpu_equals_cpu_without_synchronization(shape: tuple[int, ...], classes: int) -> None:
    for seed, connectivity in product(range(2), range(1, len(shape))):
        labels = blob_and_specks(shape, classes, seed)
        on_device = labels.cuda()
        torch.cuda.synchronize()
        with no_synchronization():
            kept = largest_components(on_device, classes, connectivity)
        assert torch.equal(kept.cpu(), largest_components(labels, classes, connectivity))


@pytest.mark.gpu
@needs_gpu
@needs_triton
def test_components_replay_inside_a_cuda_graph() -> None:
    batches = [blob_and_specks((3, 48, 48, 40), 3, seed) for seed in range(3)]
    static = batches[0].cuda()
    largest_components(static, 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept, kept_of_one_class = largest_components(static, 3), largest_components(static, 3, only=(2,))
    for labels in batches:
        static.copy_(labels)
        graph.replay()
        assert torch.equal(kept.cpu(), largest_components(labels, 3))
        assert torch.equal(kept_of_one_class.cpu(), largest_components(labels, 3, only=(2,)))
