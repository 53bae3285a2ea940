from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graftseg.core.types import Batch, Case, Geometry, Labeled, Objective, Split, halves

TURNED = ((0.0, -2.0, 0.0, 10.0), (3.0, 0.0, 0.0, -5.0), (4.0, 0.0, 0.5, 7.0), (0.0, 0.0, 0.0, 1.0))


def labeled(size: int) -> Labeled:
    labels = torch.arange(size).view(-1, 1, 1).expand(size, 2, 3)
    return Labeled(labels.unsqueeze(1).float(), labels)


def test_halves_keep_the_order() -> None:
    first, second = halves(torch.arange(6))
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [3, 4, 5])


@pytest.mark.parametrize("size", [1, 3, 7])
def test_an_odd_batch_cannot_be_halved(size: int) -> None:
    with pytest.raises(ValueError):
        halves(torch.zeros(size, 2))
    with pytest.raises(ValueError):
        labeled(size).halves()


def test_an_odd_batch_is_named_by_its_size() -> None:
    with pytest.raises(ValueError, match="a batch of 3 cannot be halved"):
        halves(torch.zeros(3, 2))


def test_halves_of_labeled_images_keep_image_and_label_together() -> None:
    i, j = labeled(4).halves()
    assert i.images.shape == j.images.shape == (2, 1, 2, 3)
    assert i.labels[:, 0, 0].tolist() == i.images[:, 0, 0, 0].tolist() == [0, 1]
    assert j.labels[:, 0, 0].tolist() == j.images[:, 0, 0, 0].tolist() == [2, 3]


def test_a_batch_has_no_labels_of_unlabeled_images() -> None:
    batch = Batch(labeled(2), torch.zeros(2, 1, 2, 3))
    assert set(vars(batch)) == {"labeled", "unlabeled", "plain"} and batch.plain is None
    assert isinstance(batch.unlabeled, torch.Tensor)
    with pytest.raises(FrozenInstanceError):
        batch.unlabeled = torch.ones(1)  # type: ignore[misc] # the refusal is what is tested


def test_an_objective_adds_up_its_weighted_terms() -> None:
    terms = {"a": torch.tensor(2.0), "b": torch.tensor(10.0), "c": torch.tensor(100.0)}
    assert Objective("student", terms).total.item() == 112
    assert Objective("student", terms, {"a": 0.5, "c": torch.tensor(0.25)}).total.item() == 1 + 10 + 25
    assert Objective("student", {"a": torch.tensor(3.0)}, {"a": 0.0}).total.item() == 0


def test_gradients_reach_the_terms_by_their_weights() -> None:
    a, b = torch.tensor(2.0, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    total = Objective("student", {"a": a, "b": b.square()}, {"b": 0.5}).total
    assert [g.item() for g in torch.autograd.grad(total, (a, b))] == [1, 5]


def test_a_weight_needs_a_term() -> None:
    with pytest.raises(ValueError, match=r"unknown terms: \['L_inn', 'L_out'\]"):
        Objective("student", {"L_in": torch.tensor(1.0)}, {"L_out": 1.0, "L_inn": 0.5, "L_in": 2.0})


def test_an_unlabeled_case_has_no_label() -> None:
    image, label = (Path("image.nii.gz"),), Path("label.nii.gz")
    with pytest.raises(ValueError, match="case liver_7 is unlabeled but has a label"):
        Case("liver_7", image, label, "unlabeled")
    assert Case("liver_7", image, None, "unlabeled").label is None


@pytest.mark.parametrize("split", ["labeled", "test"])
def test_other_cases_may_have_a_label(split: Split) -> None:
    assert Case("liver_7", (Path("image.nii.gz"),), Path("label.nii.gz"), split).label == Path("label.nii.gz")


@pytest.mark.parametrize(("units", "factor"), [("mm", 1.0), ("unknown", 1.0), ("meter", 1000.0), ("micron", 0.001)])
def test_spacing_is_in_millimeters(units: str, factor: float) -> None:
    geometry = Geometry((4, 5, 6), TURNED, units)
    assert geometry.spacing == pytest.approx((5 * factor, 2 * factor, 0.5 * factor))


def test_spacing_of_an_image_of_two_axes() -> None:
    assert Geometry((4, 5), TURNED).spacing == pytest.approx((5.0, 2.0))


def test_the_affine_as_an_array() -> None:
    matrix = Geometry((4, 5, 6), TURNED).matrix
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, TURNED)


def test_the_volume_of_a_voxel() -> None:
    matrix = np.diag([0.7, 0.9, 3.0, 1.0])
    assert Geometry((4, 4, 4), as_matrix(matrix)).voxel_volume == 0.7 * 0.9 * 3.0
    # slices that lie askew are no thicker for it
    matrix[1, 2] = 1.4
    sheared = Geometry((4, 4, 4), as_matrix(matrix))
    assert sheared.spacing[2] == pytest.approx(np.hypot(3.0, 1.4))
    assert sheared.voxel_volume == pytest.approx(0.7 * 0.9 * 3.0)


def test_the_volume_of_a_voxel_of_a_rotated_scan_in_meters() -> None:
    turned = np.array([[0.0, -2e-3, 0.0, 1.0], [1e-3, 0.0, 0.0, 5.0], [0.0, 0.0, 3e-3, -2.0], [0.0, 0.0, 0.0, 1.0]])
    assert Geometry((4, 4, 4), as_matrix(turned), units="meter").voxel_volume == pytest.approx(6.0)


def as_matrix(array: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    return tuple(tuple(row) for row in array.tolist())
