"""Weights of public code, compared with small networks that have the layers and names of that code."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from command_line import CommandLine
from torch import Tensor, nn

import graftseg
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder
from graftseg.inference.model import load_network
from graftseg.recipes.recipe import load_recipe
from user_errors import user_error

WIDTH = 2
LEVELS = ("one", "two", "three", "four", "five")
UPWARDS = (("five", "six", 3), ("six", "seven", 3), ("seven", "eight", 2), ("eight", "nine", 1))


class Layers(nn.Module):
    """Layers under one name, such as ``conv``."""

    def __init__(self, name: str, *layers: nn.Module) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, nn.Sequential(*layers))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers in order."""
        y: Tensor = self.get_submodule(self.name)(x)
        return y


class PublicVNet(nn.Module):
    """The V-Net with the names of BCP's code. The names in SSL4MIS have no ``encoder.`` and no ``decoder.``."""

    def __init__(self, *, classes: int = 2, channels: int = 1) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Module(), nn.Module()
        for level, name in enumerate(LEVELS):
            entry, width = (channels if level == 0 else WIDTH << level), WIDTH << level
            units = [
                self.unit(nn.Conv3d(entry if n == 0 else width, width, 3, padding=1)) for n in range(min(level + 1, 3))
            ]
            self.encoder.add_module(f"block_{name}", Layers("conv", *chain.from_iterable(units)))
            if level < 4:
                down = self.unit(nn.Conv3d(width, 2 * width, 2, stride=2))
                self.encoder.add_module(f"block_{name}_dw", Layers("conv", *down))
        for level, (below, name, count) in zip((3, 2, 1, 0), UPWARDS, strict=True):
            width = WIDTH << level
            up = self.unit(nn.ConvTranspose3d(2 * width, width, 2, stride=2))
            self.decoder.add_module(f"block_{below}_up", Layers("conv", *up))
            units = [self.unit(nn.Conv3d(width, width, 3, padding=1)) for _ in range(count)]
            self.decoder.add_module(f"block_{name}", Layers("conv", *chain.from_iterable(units)))
        self.decoder.add_module("out_conv", nn.Conv3d(WIDTH, classes, 1))
        self.projection_head = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32))
        self.contrastive_class_selector_memory0 = nn.Linear(32, 1)

    @staticmethod
    def unit(convolution: nn.Module) -> list[nn.Module]:
        width = int(convolution.out_channels)  # type: ignore[arg-type]
        return [convolution, nn.BatchNorm3d(width), nn.ReLU()]

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        skips = []
        for name in LEVELS:
            x = self.encoder.get_submodule(f"block_{name}")(x)
            skips.append(x)
            if name != "five":
                x = self.encoder.get_submodule(f"block_{name}_dw")(x)
        for skip, (below, name, _) in zip(skips[-2::-1], UPWARDS, strict=True):
            x = self.decoder.get_submodule(f"block_{below}_up")(x) + skip
            x = self.decoder.get_submodule(f"block_{name}")(x)
        y: Tensor = self.decoder.get_submodule("out_conv")(x)
        return y


class UpBlock(nn.Module):
    """A step of the U-Net's decoder."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1x1 = nn.Conv2d(2 * width, width, 1)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.conv = block(2 * width, width)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Upsample and combine with the features of the encoder."""
        y: Tensor = self.conv(torch.cat([skip, self.up(self.conv1x1(x))], dim=1))
        return y


def block(entry: int, width: int) -> Layers:
    first = (nn.Conv2d(entry, width, 3, padding=1), nn.BatchNorm2d(width), nn.LeakyReLU(), nn.Dropout(0.1))
    second = (nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.LeakyReLU())
    return Layers("conv_conv", *first, *second)


class PublicUNet(nn.Module):
    """The 2-D U-Net with the names of the public code."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Module(), nn.Module()
        self.encoder.in_conv = block(1, WIDTH)
        for level in range(1, 5):
            down = Layers("maxpool_conv", nn.MaxPool2d(2), block(WIDTH << (level - 1), WIDTH << level))
            self.encoder.add_module(f"down{level}", down)
            self.decoder.add_module(f"up{level}", UpBlock(WIDTH << (4 - level)))
        self.decoder.out_conv = nn.Conv2d(WIDTH, classes, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        skips = [self.encoder.get_submodule("in_conv")(x)]
        for level in range(1, 5):
            skips.append(self.encoder.get_submodule(f"down{level}")(skips[-1]))
        x = skips[4]
        for level in range(1, 5):
            x = self.decoder.get_submodule(f"up{level}")(x, skips[4 - level])
        y: Tensor = self.decoder.get_submodule("out_conv")(x)
        return y


def trained(network: nn.Module, images: Tensor) -> nn.Module:
    """Return the network in eval mode with random weights, statistics of these images, and balanced classes."""
    torch.manual_seed(1)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():
        for _ in range(5):
            network.train()(images)
        network.eval().get_parameter("decoder.out_conv.weight").mul_(20)
        network.get_parameter("decoder.out_conv.bias").sub_(network(images).transpose(0, 1).flatten(1).mean(1))
    return network


def saved(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


VOLUMES, SLICES = torch.randn(2, 1, 16, 32, 16), torch.randn(2, 1, 32, 48)
VENTRICLES = ("background", "right ventricle", "myocardium", "left ventricle")
VNET = (
    PublicVNet(),
    VOLUMES,
    "la-8/bcp",
    ("background", "left atrium"),
    ["batches.patch=[32, 16, 16]", "inference.stride=null"],
)
UNET = (PublicUNet(), SLICES, "acdc-7/bcp", VENTRICLES, ["batches.patch=[32, 48]"])


def plain(state: dict[str, Tensor]) -> Any:
    """Return a state dict as the self-training of BCP saves it."""
    return state


def in_one_part(state: dict[str, Tensor]) -> Any:
    """Return a state dict as SSL4MIS saves the V-Net."""
    parts = ("encoder.", "decoder.")
    return {name.split(".", 1)[1]: value for name, value in state.items() if name.startswith(parts)}


def with_optimizer(state: dict[str, Tensor]) -> Any:
    """Return a state dict as the pre-training of BCP saves it, on several GPUs."""
    return {"net": {f"module.{name}": value for name, value in state.items()}, "opt": {"state": {}, "lr": 0.01}}


@pytest.mark.parametrize(
    ("form", "network", "images", "recipe", "classes", "overrides"),
    [(plain, *VNET), (in_one_part, *VNET), (with_optimizer, *VNET), (plain, *UNET), (with_optimizer, *UNET)],
)
def test_outputs_are_those_of_the_public_code(
    form: Callable[[dict[str, Tensor]], Any],
    network: nn.Module,
    images: Tensor,
    recipe: str,
    classes: tuple[str, ...],
    overrides: list[str],
    tmp_path: Path,
) -> None:
    network = trained(network, images)
    file = saved(tmp_path / "best_model.pth", form(network.state_dict()))
    run = graftseg.import_weights(file, tmp_path / "run", overrides=overrides)
    loaded = load_network(run)
    with torch.inference_mode():
        torch.testing.assert_close(loaded.method.student(images), network(images), rtol=1e-4, atol=1e-4)
    assert (loaded.classes, loaded.channels, loaded.recipe.network.width) == (classes, 1, WIDTH)
    assert loaded.recipe.inference.decision == load_recipe(recipe).inference.decision
    assert recipe in loaded.recipe.about and loaded.recipe.published is None
    assert run.manifest()["checkpoint"] == "imported"


def test_an_imported_run_predicts(tmp_path: Path, cli: CommandLine) -> None:
    network = trained(PublicUNet(), SLICES)
    file = saved(tmp_path / "unet.pth", network.state_dict())
    run = tmp_path / "run"
    cli("import-weights", file, "--out", run, "--set", "batches.patch=[32, 48]")
    images = np.random.default_rng(0).standard_normal((32, 48, 3), dtype=np.float32)
    (tmp_path / "scans").mkdir()
    nibabel.save(nibabel.Nifti1Image(images, np.eye(4)), tmp_path / "scans" / "a.nii.gz")
    code, _, _ = cli("predict", run, tmp_path / "scans", "--out", tmp_path / "labels", "--device", "cpu")
    assert code == 0
    labels = np.asarray(nibabel.load(tmp_path / "labels" / "a.nii.gz").dataobj)
    with torch.inference_mode():
        logits = network(torch.from_numpy(images).permute(2, 0, 1)[:, None])
    expected = logits.argmax(1).permute(1, 2, 0).numpy()
    assert len(np.unique(expected)) > 1
    assert (labels != expected).mean() < 0.001  # ties by rounding
    assert np.array_equal(graftseg.load(run, device="cpu").predict(images, np.eye(4)), labels)


def test_other_classes_and_channels(tmp_path: Path) -> None:
    network = PublicVNet(classes=5, channels=3)
    file = saved(tmp_path / "vnet.pth", network.state_dict())
    graftseg.import_weights(file, tmp_path / "run", overrides=["inference.decision=argmax"])
    loaded = load_network(RunFolder(tmp_path / "run"))
    assert (loaded.channels, loaded.classes[1:]) == (3, ("class 1", "class 2", "class 3", "class 4"))


def without(state: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize(
    ("content", "code", "keyword"),
    [
        ({"conv1.weight": torch.ones(3)}, Code.WEIGHTS_DAMAGED, "conv1.weight"),
        ({"epoch": 3}, Code.WEIGHTS_DAMAGED, "state dict"),
        ([1, 2], Code.WEIGHTS_DAMAGED, "state dict"),
        ({}, Code.WEIGHTS_DAMAGED, "missing"),
        (nn.Linear(1, 1), Code.WEIGHTS_DAMAGED, "executing code"),
        (without(PublicVNet().state_dict(), "encoder.block_two.conv.3.weight"), Code.RECIPE_MISMATCH, "vnet-bn"),
        (without(PublicVNet().state_dict(), "decoder.out_conv.weight"), Code.WEIGHTS_DAMAGED, "last layer"),
        (
            PublicUNet().state_dict() | {"decoder.out_conv.bias": torch.full((4,), torch.nan)},
            Code.WEIGHTS_DAMAGED,
            "not finite",
        ),
    ],
)
def test_other_files_are_errors(content: Any, code: Code, keyword: str, tmp_path: Path) -> None:
    file = saved(tmp_path / "other.pth", content)
    with user_error(code, file, keyword):
        graftseg.import_weights(file, tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["other.pth"]


def test_files_and_targets_are_checked(tmp_path: Path) -> None:
    with user_error(Code.FILE_MISSING, tmp_path / "absent.pth"):
        graftseg.import_weights(tmp_path / "absent.pth", tmp_path / "run")
    (tmp_path / "text.pth").write_text("weights")
    with user_error(Code.WEIGHTS_DAMAGED, tmp_path / "text.pth"):
        graftseg.import_weights(tmp_path / "text.pth", tmp_path / "run")
    file = saved(tmp_path / "vnet.pth", PublicVNet().state_dict())
    with user_error(Code.TARGET_EXISTS, tmp_path):
        graftseg.import_weights(file, tmp_path)
    with user_error(Code.RECIPE_MISMATCH, file, "unet-2d"):
        graftseg.import_weights(file, tmp_path / "run", recipe="acdc-7/bcp")
