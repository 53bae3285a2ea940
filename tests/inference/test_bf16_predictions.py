"""Prediction in bfloat16: checked on each scan, switched off by a setting, and at most 0.1 % of labels changed."""

import shutil
from pathlib import Path

import pytest
import tiny
import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg import api
from graftseg.core.predictions import read_manifest
from graftseg.core.run_folder import RunFolder
from graftseg.data.grid import Grid
from graftseg.data.store import Store
from graftseg.inference import ensemble
from graftseg.inference.bf16 import CHECKED_WINDOWS, Bf16Segment
from graftseg.inference.ensemble import EXACT, Ensemble
from graftseg.inference.label_maps import LABELS_ONLY
from graftseg.inference.predictor import Predictor
from graftseg.networks.fused import fuse
from graftseg.networks.vnet import VNet
from graftseg.recipes.settings import InferenceSettings

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


class Fake:
    """A network of two classes that labels ``wrong`` of 1,000 voxels of a window differently under autocast."""

    def __init__(self, wrong: int) -> None:
        self.wrong, self.exact = wrong, 0

    def __call__(self, images: Tensor) -> Tensor:
        foreground = torch.full_like(images, 0.25)
        if torch.is_autocast_enabled("cpu"):
            foreground.flatten()[: self.wrong] = 0.75
        else:
            self.exact += len(images)
        return torch.cat([1 - foreground, foreground], dim=1)


@pytest.mark.parametrize(("wrong", "is_rejected"), [(0, False), (1, False), (2, True)])
def test_bfloat16_is_rejected_if_more_than_a_thousandth_of_the_labels_differ(wrong: int, is_rejected: bool) -> None:
    network = Fake(wrong)
    segment = Bf16Segment(network, CPU, is_checked=True)
    settings = InferenceSettings(overlap=0, windows_per_forward=1)
    predictor = Predictor(segment, (10, 10, 10), settings, 2, CPU)
    image, grid = torch.zeros(1, 100, 10, 10), Grid.identity((100, 10, 10))
    for scan in (1, 2):
        labels = predictor.maps(image, grid).labels
        assert labels.sum() == (0 if is_rejected else 10 * wrong)
        assert segment.is_rejected == is_rejected
        assert network.exact == scan * (1 + 10 * is_rejected), "one of ten windows is checked"


def test_scans_with_few_windows_are_predicted_in_float32() -> None:
    network = Fake(1000)
    segment = Bf16Segment(network, CPU, is_checked=True)
    predictor = Predictor(segment, (10, 10, 10), InferenceSettings(overlap=0), 2, CPU)
    assert not predictor.maps(torch.zeros(1, 70, 10, 10), Grid.identity((70, 10, 10))).labels.any()
    assert network.exact == 7 and segment.is_rejected


def test_four_windows_of_a_large_scan_are_checked() -> None:
    network = Fake(0)
    predictor = Predictor(Bf16Segment(network, CPU, is_checked=True), (2,), InferenceSettings(), 2, CPU)
    segment = predictor.segment
    assert isinstance(segment, Bf16Segment)
    segment.start(100)
    for _ in range(100):
        segment(torch.zeros(1, 1, 10, 10, 10))
    assert network.exact == CHECKED_WINDOWS


def test_without_a_check_bfloat16_is_never_rejected() -> None:
    network = Fake(1000)
    segment = Bf16Segment(network, CPU, is_checked=False)
    predictor = Predictor(segment, (10, 10, 10), InferenceSettings(), 2, CPU)
    assert predictor.maps(torch.zeros(1, 10, 10, 10), Grid.identity((10, 10, 10))).labels.all()
    assert network.exact == 0


def test_the_setting_and_the_device_decide(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / "run")
    api.train(tiny.tiny_recipe(), store.path, run.path, device="cpu")

    def uses_bf16(*overrides: str) -> bool:
        return isinstance(Ensemble.load([run], CPU, overrides, "shipped").predictor.segment, Bf16Segment)

    monkeypatch.setattr(ensemble, "has_bf16", lambda device: True)
    assert (uses_bf16(), uses_bf16("inference.precision=bf16"), uses_bf16(EXACT)) == (True, True, False)
    images = Path(shutil.copytree(store.path, tmp_path / "copy"))
    api.predict(run.path, images, tmp_path / "out", overrides=["inference.precision=bf16"], device="cpu")
    said = read_manifest(tmp_path / "out", "")
    assert said is not None and {case.precision for case in said.cases} == {"bf16"}
    assert "precision" not in said.inference
    monkeypatch.setattr(ensemble, "has_bf16", lambda device: False)
    assert not uses_bf16("inference.precision=bf16")


def test_the_default_is_not_written() -> None:
    assert "precision" not in InferenceSettings().model_dump()
    assert InferenceSettings(precision="float32").model_dump()["precision"] == "float32"


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_a_trained_network_labels_999_of_1000_voxels_equally(device: str) -> None:
    """A network that segments noisy waves gives the same label map in float32 and in bfloat16."""
    torch.manual_seed(0)
    axis = torch.cos(torch.arange(32) / 6)
    waves = (axis[:, None, None] + axis[:, None] + axis).expand(2, 1, -1, -1, -1)
    image, labels = waves + 0.2 * torch.randn_like(waves), (waves[:, 0] > 0.5).long()
    image, labels = image.to(device), labels.to(device)
    network = VNet(1, 2, width=4, levels=3, dropout=0).to(device).train()
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        loss = F.cross_entropy(network(image), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    fuse(network.eval())

    def segment(images: Tensor) -> Tensor:
        return network(images).float().softmax(1)  # type: ignore[no-any-return]

    settings, place = InferenceSettings(), torch.device(device)
    found = [
        Predictor(chosen, (16, 16, 16), settings, 2, place).prepared_maps(
            image[0], Grid.identity((32,) * 3), LABELS_ONLY
        )
        for chosen in (segment, Bf16Segment(segment, place, is_checked=True))
    ]
    exact, fast = (maps.labels for maps in found)
    assert (exact == labels[0]).float().mean() > 0.95
    assert 0.999 <= (exact == fast).float().mean() <= 1
