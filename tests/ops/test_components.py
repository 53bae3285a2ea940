"""Largest components equal scipy and flood fill, for every connectivity, class and memory order."""

import subprocess
import sys
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from components_reference import largest_component_by_definition
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from graftseg.ops.components import ComponentRule, chosen_classes, largest_component_of, largest_components

LabelMap = npt.NDArray[np.int64]
CLASSES = 4


@st.composite
def label_maps(draw: st.DrawFn) -> tuple[LabelMap, int]:
    """Draw a 2-D or 3-D label map with many small components, and a connectivity."""
    axes = draw(st.integers(2, 3))
    shape = tuple(draw(st.integers(1, 7 - axes)) for _ in range(axes))
    labels = draw(arrays(np.int64, shape, elements=st.integers(0, draw(st.integers(1, CLASSES - 1)))))
    return labels, draw(st.integers(1, axes))


def by_flood_fill(labels: LabelMap, connectivity: int) -> LabelMap:
    """Fill voxel by voxel in array order; a component replaces an earlier one only if it is larger."""
    steps = [s for s in product((-1, 0, 1), repeat=labels.ndim) if 0 < np.abs(s).sum() <= connectivity]
    seen: set[tuple[int, ...]] = set()
    best: dict[int, list[tuple[int, ...]]] = {}
    for start in np.ndindex(labels.shape):
        value = int(labels[start])
        if value == 0 or start in seen:
            continue
        component, waiting = [], [start]
        seen.add(start)
        while waiting:
            voxel = waiting.pop()
            component.append(voxel)
            for step in steps:
                near = tuple(v + s for v, s in zip(voxel, step, strict=True))
                inside = all(0 <= n < size for n, size in zip(near, labels.shape, strict=True))
                if inside and near not in seen and labels[near] == value:
                    seen.add(near)
                    waiting.append(near)
        if len(component) > len(best.get(value, [])):
            best[value] = component
    kept = np.zeros_like(labels)
    for value, component in best.items():
        for voxel in component:
            kept[voxel] = value
    return kept


@given(label_maps())
@settings(deadline=None, max_examples=60)
def test_components_equal_scipy_and_flood_fill(example: tuple[LabelMap, int]) -> None:
    labels, connectivity = example
    kept = largest_component_of(labels, CLASSES, connectivity)
    np.testing.assert_array_equal(kept, largest_component_by_definition(labels, CLASSES, connectivity))
    np.testing.assert_array_equal(kept, by_flood_fill(labels, connectivity))


@given(label_maps(), st.sets(st.integers(1, CLASSES - 1)))
@settings(deadline=None)
def test_classes_not_in_only_keep_all_voxels(example: tuple[LabelMap, int], only: set[int]) -> None:
    labels, connectivity = example
    kept = largest_components(torch.from_numpy(labels)[None], CLASSES, connectivity, only)[0].numpy()
    np.testing.assert_array_equal(kept, largest_component_by_definition(labels, CLASSES, connectivity, only))
    all_classes = by_flood_fill(labels, connectivity)
    named = np.isin(labels, [*only, 0])
    np.testing.assert_array_equal(kept[named], all_classes[named])
    np.testing.assert_array_equal(kept[~named], labels[~named])


@pytest.mark.parametrize(("rule", "classes"), [(True, None), (False, ()), ((), ()), ((2, 1), (2, 1))])
def test_component_rules(rule: ComponentRule, classes: tuple[int, ...] | None) -> None:
    assert chosen_classes(rule) == classes


@pytest.mark.parametrize("shape", [(40, 40), (14, 14, 14)])
@pytest.mark.parametrize("density", [0.2, 0.5, 0.8])
def test_larger_maps_at_every_connectivity(shape: tuple[int, ...], density: float) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(1, CLASSES, shape) * (rng.random(shape) < density)
    for connectivity in range(1, len(shape) + 1):
        kept = largest_component_of(labels, CLASSES, connectivity)
        np.testing.assert_array_equal(kept, largest_component_by_definition(labels, CLASSES, connectivity))


@given(label_maps())
@settings(deadline=None)
def test_one_component_of_each_class_is_kept(example: tuple[LabelMap, int]) -> None:
    labels, connectivity = example
    kept = largest_component_of(labels, CLASSES, connectivity)
    assert set(np.unique(labels)) - {0} == set(np.unique(kept)) - {0}
    np.testing.assert_array_equal(kept[kept > 0], labels[kept > 0])
    np.testing.assert_array_equal(largest_component_of(kept, CLASSES, connectivity), kept)
    structure = ndimage.generate_binary_structure(labels.ndim, connectivity)
    for value in np.unique(kept[kept > 0]):
        _, count = ndimage.label(kept == value, structure=structure)
        assert count == 1


@pytest.mark.parametrize(
    ("connectivity", "voxels"), [(1, 2), (2, 3), (3, 4), (None, 4)], ids=["faces", "edges", "corners", "default"]
)
def test_neighbors_of_each_connectivity(connectivity: int | None, voxels: int) -> None:
    labels = torch.zeros(1, 5, 5, 5, dtype=torch.int64)
    for voxel in ((0, 0, 0), (0, 0, 1), (0, 1, 2), (1, 2, 3)):  # joined by a face, an edge, a corner
        labels[0][voxel] = 1
    assert int(largest_components(labels, 2, connectivity).sum()) == voxels


def test_neighbors_in_2d() -> None:
    labels = torch.tensor([[[1, 1, 0], [0, 0, 1], [0, 0, 0]]])
    assert int(largest_components(labels, 2, 1).sum()) == 2
    assert int(largest_components(labels, 2, 2).sum()) == 3
    assert int(largest_components(labels, 2).sum()) == 3


def test_samples_and_classes_are_independent() -> None:
    labels = torch.tensor([[[1, 1, 0, 1], [0, 0, 0, 0], [2, 0, 2, 2]], [[1, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 2]]])
    kept = [[[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 2, 2]], [[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 2]]]
    assert largest_components(labels, 3).tolist() == kept


def test_touching_classes_are_separate_components() -> None:
    labels = torch.tensor([[[1, 2, 2, 1, 1]]])
    assert largest_components(labels, 3).tolist() == [[[0, 2, 2, 1, 1]]]


def test_first_of_equal_components_is_kept() -> None:
    labels = torch.tensor([[[0, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]]])
    expected = [[[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]]
    assert largest_components(labels, 2).tolist() == expected
    mirrored = largest_components(labels.flip(1), 2)
    assert mirrored.tolist() == [[[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_dtype_is_kept_and_input_unchanged(dtype: torch.dtype) -> None:
    labels = torch.tensor([[[1, 1, 0, 1]], [[0, 0, 0, 0]], [[0, 1, 0, 0]]], dtype=dtype)
    before = labels.clone()
    kept = largest_components(labels, 2)
    assert kept.dtype == dtype
    assert kept.tolist() == [[[1, 1, 0, 0]], [[0, 0, 0, 0]], [[0, 1, 0, 0]]]
    kept.fill_(1)
    assert torch.equal(labels, before)


def test_empty_map_stays_empty() -> None:
    empty = torch.zeros(2, 3, 4, 5, dtype=torch.uint8)
    assert torch.equal(largest_components(empty, 3), empty)


def test_map_without_background() -> None:
    full = torch.ones(1, 3, 3, dtype=torch.int64)
    assert torch.equal(largest_components(full, 2), full)


def test_memory_order_does_not_matter() -> None:
    labels = torch.randint(0, 3, (2, 5, 6, 7), generator=torch.Generator().manual_seed(0))
    expected = largest_components(labels, 3, 1)
    turned = labels.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    assert not turned.is_contiguous()
    assert torch.equal(largest_components(turned, 3, 1), expected)
    strided = labels.repeat_interleave(2, dim=3)[..., ::2]
    assert torch.equal(largest_components(strided, 3, 1), expected)
    fortran = np.asfortranarray(labels[0].numpy())
    np.testing.assert_array_equal(largest_component_of(fortran, 3, 1), expected[0].numpy())


@pytest.mark.parametrize("labels", [[[3, 0, 0]], [[3, 0, 1]]])
def test_value_beyond_the_classes_becomes_background(labels: list[list[int]]) -> None:
    kept = largest_components(torch.tensor([labels]), 3)
    assert kept.tolist() == [[[0, 0, labels[0][2]]]]


@pytest.mark.parametrize("labels", [[[-1, -1, 0]], [[-3, 0, 1]]])
def test_negative_value_becomes_background(labels: list[list[int]]) -> None:
    kept = largest_components(torch.tensor([labels]), 3)
    assert kept.tolist() == [[[0, 0, labels[0][2]]]]


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3), (2, 3, 4, 0)])
def test_array_without_voxels(shape: tuple[int, ...]) -> None:
    assert largest_components(torch.empty(shape, dtype=torch.uint8), 2).shape == shape


@pytest.mark.parametrize(("axes", "connectivity"), [(2, 0), (2, 3), (3, 0), (3, 4), (3, -1), (1, 1)])
def test_invalid_connectivity_is_rejected(axes: int, connectivity: int) -> None:
    with pytest.raises(ValueError, match=f"connectivity of {connectivity} does not fit label maps of {axes} axes"):
        largest_component_of(np.ones((3,) * axes, dtype=np.uint8), 2, connectivity)
    with pytest.raises(ValueError, match=f"connectivity of {connectivity} does not fit label maps of {axes} axes"):
        largest_components(torch.ones((1,) + (3,) * axes, dtype=torch.uint8), 2, connectivity)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_label_maps_must_be_integers(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match="must be integers"):
        largest_components(torch.ones(1, 2, 2, dtype=dtype), 2)


def test_operator_passes_opcheck() -> None:
    labels = torch.randint(0, 3, (2, 5, 6, 7), generator=torch.Generator().manual_seed(0))
    for given_labels in (labels, labels.transpose(1, 3), labels.to(torch.uint8)):
        results = torch.library.opcheck(torch.ops.graftseg.largest_components.default, (given_labels, 3, 2))
        assert set(results.values()) == {"SUCCESS"}


def test_components_compile_without_graph_break() -> None:
    def clean(images: torch.Tensor) -> torch.Tensor:
        return largest_components(images.argmax(1), images.shape[1]) * 2

    images = torch.randn(2, 3, 8, 9, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(clean, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(images), clean(images))


@pytest.mark.slow
def test_kernels_are_not_imported_without_a_gpu() -> None:
    script = (
        "import sys, torch; from graftseg.ops.components import largest_components;"
        "largest_components(torch.ones(1, 2, 2, dtype=torch.uint8), 2);"
        "assert 'graftseg.ops.components.kernels' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
