"""Pictures of a step: when, which slice, which type."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_method, tiny_networks
from torch import Tensor

from graftseg.core.settings import Settings
from graftseg.methods import Method
from graftseg.training.snapshots import snapshot, snapshot_steps


class Watching(Method):
    """A network that finds class 2 where the image is above zero."""

    def __init__(self) -> None:
        super().__init__(Settings(), tiny_networks(2))

    def preview_labels(self, images: Tensor) -> Tensor:
        return 2 * (images[:, 0] > 0).long()


@pytest.mark.parametrize(
    ("steps", "count", "expected"),
    [(10, 3, {1, 3, 7, 10}), (9, 1, {1, 9}), (700, 3, {1, 233, 467, 700}), (1, 1, {1}), (5, 0, set())],
)
def test_first_last_and_evenly_between(steps: int, count: int, expected: set[int]) -> None:
    assert snapshot_steps(steps, count) == expected


@given(st.integers(1, 10_000), st.integers(1, 20))
@settings(deadline=None)
def test_first_and_last_are_always_shown(steps: int, count: int) -> None:
    shown = snapshot_steps(steps, count)
    assert {1, steps} <= shown and max(shown) == steps
    assert len(shown) <= count + 1


def test_two_dimensional_pictures_of_the_first_image() -> None:
    X, Y, M = torch.rand(4, 2, 5, 6), torch.randint(3, (4, 5, 6)), torch.rand(5, 6) > 0.5
    pictures = snapshot(Watching(), {"X_in": X, "Y_in": Y, "M": M}, None)
    assert np.array_equal(pictures["X_in"], X[0, 0])
    assert np.array_equal(pictures["Y_in"], Y[0])
    assert np.array_equal(pictures["M"], M)
    assert {name: picture.dtype.name for name, picture in pictures.items()} == {
        "X_in": "float32",
        "Y_in": "uint8",
        "M": "uint8",
    }


def test_volumes_are_shown_by_the_slice_with_most_foreground() -> None:
    X, Y, M = torch.rand(2, 1, 4, 5, 7), torch.zeros(2, 4, 5, 7, dtype=torch.long), torch.rand(4, 5, 7) > 0.5
    Y[0, 1, 1, 5], Y[0, :2, 1, 2], Y[1, :, :, 6] = 2, 1, 1
    pictures = snapshot(Watching(), {"X_in": X, "Y_in": Y, "M": M}, None)
    assert np.array_equal(pictures["X_in"], X[0, 0, :, :, 2])
    assert np.array_equal(pictures["Y_in"], Y[0, :, :, 2])
    assert np.array_equal(pictures["M"], M[:, :, 2])


def test_half_precision_is_widened() -> None:
    X = torch.tensor([[[[0.5, -2.0]]]], dtype=torch.bfloat16, requires_grad=True)
    picture = snapshot(Watching(), {"X_in": X}, None)["X_in"]
    assert picture.dtype == np.float32 and picture.tolist() == [[0.5, -2.0]]


def test_watched_scans_come_with_their_pseudo_labels() -> None:
    watched = torch.tensor([[[[1.0, -1.0]]], [[[-1.0, 1.0]]]])
    pictures = snapshot(Watching(), {}, watched)
    assert list(pictures) == ["X_watch_0", "Y_watch_0", "X_watch_1", "Y_watch_1"]
    assert pictures["X_watch_1"].tolist() == [[-1.0, 1.0]] and pictures["X_watch_1"].dtype == np.float32
    assert pictures["Y_watch_0"].tolist() == [[2, 0]] and pictures["Y_watch_0"].dtype == np.uint8


def test_a_method_without_pseudo_labels_is_not_watched() -> None:
    assert snapshot(tiny_method("supervised", 2), {}, torch.zeros(1, 1, 8, 8)) == {}


def test_snapshots_do_not_change_the_teacher() -> None:
    method = tiny_method("bcp", 2)
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    pictures = snapshot(method, {}, torch.randn(1, 1, 8, 8))
    assert pictures["Y_watch_0"].shape == (8, 8)
    assert all(module.training for module in method.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in method.state_dict().items())
