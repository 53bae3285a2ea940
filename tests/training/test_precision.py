"""The precision of networks: the requested one, if the device and the method support it."""

from pathlib import Path

import pytest
import torch
from tiny import tiny_recipe
from torch import nn

from graftseg import api
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Precision
from graftseg.data.store import Store
from graftseg.inference.model import build_method
from graftseg.methods import METHODS, Method
from graftseg.methods.bcp import Bcp, BcpConfig
from graftseg.networks import Networks
from graftseg.recipes.settings import LoopSettings, SelectionSettings
from graftseg.training import step as stepping
from graftseg.training.loop import Stage, fit
from graftseg.training.selection import Selector
from graftseg.training.step import StepMode, autocast
from stepping_fakes import CPU, batches_for, stage_recipe, stepper_of


@pytest.mark.parametrize(
    ("precision", "native", "dtype"),
    [("bf16", True, torch.bfloat16), ("bf16", False, torch.float32), ("float32", True, torch.float32)],
)
def test_bfloat16_is_used_if_requested_and_supported(
    precision: Precision, native: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "has_bf16", lambda device: native)
    with autocast(precision, CPU):
        assert not torch.is_autocast_cache_enabled()
        assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype == dtype
    assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.float32


class Noting(Bcp):
    """A method that records the precision of its student, in steps and during scoring."""

    def __init__(self, config: BcpConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.seen: set[torch.dtype] = set()
        head = next(part for part in self.student.modules() if isinstance(part, nn.Conv2d))
        head.register_forward_hook(lambda part, given, found: self.seen.add(found.dtype))


class Exact(Noting):
    """A method that needs float32."""

    min_precision = "float32"


@pytest.mark.parametrize(("method", "dtype"), [(Noting, torch.bfloat16), (Exact, torch.float32)])
def test_a_method_that_needs_float32_uses_it(
    method: type[Method],
    dtype: torch.dtype,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In steps and during scoring, with one message."""
    monkeypatch.setattr(stepping, "has_bf16", lambda device: True)
    monkeypatch.setitem(METHODS, "noting", method)
    recipe = tiny_recipe(stages=[{"method": "noting", "steps": 2}])
    (stage,) = recipe.stages
    built = build_method(recipe, stage, store.channels, len(store.classes), CPU)
    enabled: list[bool] = []

    def score(method: Method) -> dict[str, float]:
        enabled.append(torch.is_autocast_enabled("cpu"))
        return {"dice": 0.5}

    selector = Selector(SelectionSettings(every=1), {"validation": score})
    loop = LoopSettings(precision="bf16", tensorboard=False, snapshots=0)
    stages = [Stage(stage, lambda: built)]
    fit(stages, batches_for(recipe, store), RunFolder(tmp_path), loop, device=CPU, selector=selector)
    exact = method is Exact
    assert isinstance(built, Noting) and built.seen == {dtype} and enabled == [not exact] * 2
    assert len(caplog.messages) == exact and all("method noting" in message for message in caplog.messages)


def test_no_warning_if_float32_was_requested(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ways = ((True, StepMode("float32")), (False, StepMode("bf16")))
    for native, way in ways:
        monkeypatch.setattr(stepping, "has_bf16", lambda device, native=native: native)
        stepper_of(stage_recipe("unet-2d", "dtc"), store, way)
    assert caplog.messages == []


@pytest.mark.parametrize(("native", "used"), [(True, ["bf16", "float32"]), (False, ["float32", "float32"])])
def test_a_run_records_the_precision_of_each_stage(
    native: bool, used: list[str], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "has_bf16", lambda device: native)
    stages = [{"method": name, "steps": 1} for name in ("supervised", "dtc")]
    recipe, run = tiny_recipe(stages=stages, loop={"precision": "bf16"}), RunFolder(tmp_path / "run")
    api.train(recipe, store.path, run.path, device="cpu")
    assert run.manifest()["precision"] == used
    run.update_manifest({"status": "stopped"})
    monkeypatch.setattr(stepping, "has_bf16", lambda device: False)
    api.train(recipe, store.path, run.path, device="cpu", resume=True)
    assert run.manifest()["precision"] == ["bf16, then float32" if native else "float32", "float32"]
    run.update_manifest({"status": "stopped", "precision": None})
    api.train(recipe, store.path, run.path, device="cpu", resume=True)
    assert run.manifest()["precision"] == ["unknown, then float32"] * 2
