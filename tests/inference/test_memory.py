"""Estimate of the memory that a prediction needs."""

from pathlib import Path

import pytest
import torch

from graftseg.core.errors import Code
from graftseg.data.grid import Grid
from graftseg.inference import predictor as prediction
from graftseg.inference.label_maps import ExtraMaps
from graftseg.inference.predictor import Predictor, check_memory, host_bytes
from graftseg.recipes.settings import InferenceSettings
from user_errors import user_error

CT = Grid.identity((512, 512, 600))
VOXELS = 512 * 512 * 600
ALL = ExtraMaps(probabilities=True, uncertainty=True)


def predictor(patch: tuple[int, ...] = (96, 96, 96), device: str = "cpu", **chosen: object) -> Predictor:
    settings = InferenceSettings.model_validate(chosen)
    return Predictor(lambda images: images, patch, settings, 5, torch.device(device))


@pytest.mark.parametrize("wanted", [ExtraMaps(), ALL])
@pytest.mark.parametrize("patch", [(96, 96, 96), (128, 128, 64), (512, 512)])
def test_a_large_ct_of_five_classes_needs_less_than_six_gibibytes(wanted: ExtraMaps, patch: tuple[int, ...]) -> None:
    assert host_bytes(CT, 1, predictor(patch, largest_component=True), wanted) < 6 * 2**30


def test_channels_components_and_extra_maps_need_memory() -> None:
    small = host_bytes(CT, 1, predictor(windows_per_forward=1), ExtraMaps())
    assert host_bytes(CT, 2, predictor(windows_per_forward=1), ExtraMaps()) > small
    assert host_bytes(CT, 1, predictor(windows_per_forward=1, largest_component=True), ExtraMaps()) > small
    assert host_bytes(CT, 1, predictor(), ALL) - host_bytes(CT, 1, predictor(), ExtraMaps()) <= 18 * VOXELS
    assert host_bytes(CT, 1, predictor(device="cuda", largest_component=True), ExtraMaps()) == 20 * VOXELS


def test_a_scan_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "free_memory", lambda device: 2**30)
    check_memory(Grid.identity((16, 16, 16)), 1, predictor((16, 16, 16)), ExtraMaps(), Path("small.nii"))
    with user_error(Code.OUT_OF_MEMORY, "ct.nii", "about 2.9 GiB of memory, but only 1.0 GiB"):
        check_memory(CT, 1, predictor(device="cuda"), ExtraMaps(), Path("ct.nii"))
    with user_error(Code.OUT_OF_MEMORY, "ct.nii", "--probabilities"):
        check_memory(CT, 1, predictor(), ALL, Path("ct.nii"))
