"""The fast path on a GPU: captured and compiled steps equal plain steps, and training can be resumed."""

from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch
from torch import Tensor

from graftseg.core.run_folder import RunFolder, read_log
from graftseg.core.types import Precision
from graftseg.data.batches import Batches
from graftseg.data.store import Store
from graftseg.experiments.speed.instruments import Mark
from graftseg.experiments.speed.subject import subject_of
from graftseg.experiments.speed.usual import UsualTrainer, time_whole
from graftseg.inference.model import build_method
from graftseg.networks import convolution
from graftseg.networks.interpolation import Interpolation2d
from graftseg.networks.unet import Convolution2d
from graftseg.planning import probe
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import LoopSettings
from graftseg.training.loop import Outcome, Stage, fit
from graftseg.training.step import StepMode
from stepping_fakes import ADAM, SGD, STEPS, losses, stage_recipe, stepper_for, stepper_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
    # the compiler asks every tensor for its gradient, and has advice about precision and speed
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),
]
GPU = torch.device("cuda")


@pytest.fixture
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def assert_same_losses(one: Tensor, two: Tensor, tolerance: float = 1e-3) -> None:
    assert one.std() > 0.01, "a training in which nothing happens proves nothing"
    torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


def wide(network: str, optimizer: dict[str, Any] = SGD, width: int = 16, **options: Any) -> Recipe:
    """As many channels as our kernels take."""
    recipe = stage_recipe(network, "bcp", optimizer, **options)
    return recipe.model_copy(update={"network": recipe.network.model_copy(update={"width": width})})


def store_of(recipe: Recipe, store: Store, volumes: Store) -> Store:
    return store if recipe.data.dimensions == 2 else volumes


@pytest.mark.parametrize("optimizer", [SGD, ADAM, SGD | {"clip_gradient": 0.1}], ids=["sgd", "adam", "clipped"])
@pytest.mark.parametrize("network", ["unet-2d", "vnet-bn", "vnet-in"])
def test_captured_steps_equal_plain_steps(
    network: str, optimizer: dict[str, Any], store: Store, volumes: Store
) -> None:
    """With dropout: a graph draws the same random numbers.

    Few steps: a GPU adds in another order, which after some time changes a pseudo-label, and then all losses.
    """
    recipe = wide(network, optimizer, dropout=True)
    data = store_of(recipe, store, volumes)
    ways = (StepMode(captured=captured) for captured in (False, True))
    plain, fast = (losses(stepper_of(recipe, data, way, GPU), range(10)) for way in ways)
    assert_same_losses(plain, fast)


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("width", [3, 4, 16])
@pytest.mark.parametrize("network", ["unet-2d", "vnet-bn"])
def test_compiled_and_captured_steps_equal_plain_steps(network: str, width: int, store: Store, volumes: Store) -> None:
    recipe = wide(network, width=width)
    data = store_of(recipe, store, volumes)
    torch.compiler.reset()
    fast = losses(stepper_of(recipe, data, StepMode(compiled=True, captured=True), GPU), range(8))
    assert_same_losses(losses(stepper_of(recipe, data, device=GPU), range(8)), fast)


@pytest.mark.parametrize("network", ["unet-2d", "vnet-bn"])
def test_every_replay_draws_new_dropout(network: str, store: Store, volumes: Store) -> None:
    """The batch is the same, and a tiny learning rate hardly changes the weights, so only dropout differs."""
    recipe = wide(network, SGD | {"learning_rate": 1e-12}, dropout=True)
    supervised = recipe.stages[0].model_copy(update={"method": "supervised", "settings": {}})
    recipe = recipe.model_copy(update={"stages": (supervised,)})
    batch = Batches(store_of(recipe, store, volumes), recipe.batches, seed=0, device=GPU).at(0, 0)
    method = build_method(recipe, supervised, 1, len(store.classes), GPU).train()
    torch.compiler.reset()
    stepper = stepper_for(
        method, supervised, probe.ConstantBatches(batch, GPU), StepMode("bf16", compiled=True, captured=True)
    )
    totals = losses(stepper, range(12))[:, -1]
    assert len(set(totals.tolist())) == 12


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("network", ["unet-2d", "vnet-bn"])
def test_plain_steps_equal_those_of_a_cpu(network: str, store: Store, volumes: Store) -> None:
    """With labeled images only, because the two devices draw different masks."""
    recipe = wide(network)
    supervised = recipe.stages[0].model_copy(update={"method": "supervised", "settings": {}})
    recipe = recipe.model_copy(update={"stages": (supervised,)})
    data = store_of(recipe, store, volumes)
    assert_same_losses(
        losses(stepper_of(recipe, data), range(8)), losses(stepper_of(recipe, data, device=GPU), range(8))
    )


@pytest.mark.parametrize("network", ["unet-2d", "vnet-bn"])
def test_bfloat16_equals_float32_up_to_rounding(network: str, store: Store, volumes: Store) -> None:
    recipe = wide(network)
    data = store_of(recipe, store, volumes)
    ways: list[Precision] = ["float32", "bf16"]
    one, two = (losses(stepper_of(recipe, data, StepMode(way, captured=True), GPU)) for way in ways)
    assert_same_losses(one, two, 0.2)
    assert not torch.equal(one, two)


def run(recipe: Recipe, store: Store, folder: Path, loop: LoopSettings, *, resume: bool = False) -> Outcome:
    torch.manual_seed(recipe.seed)
    batches = Batches(store, recipe.batches, seed=recipe.seed, device=GPU)
    build = partial(build_method, recipe, channels=store.channels, classes=len(store.classes), device=GPU)
    stages = [Stage(stage, partial(build, stage)) for stage in recipe.stages]
    return fit(stages, batches, RunFolder(folder), loop, device=GPU, resume=resume)


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
def test_a_compiled_and_captured_training_resumes(
    optimizer: dict[str, Any], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = wide("unet-2d", optimizer)
    loop = LoopSettings(
        compiled=True, captured=True, log_every=3, checkpoint_every=4, checkpoint_seconds=1e6, snapshots=2,
        tensorboard=False,
    )  # fmt: skip
    torch.compiler.reset()
    run(recipe, store, tmp_path / "whole", loop)
    original = Batches.draw

    def cut(batches: Batches, stage: int, step: int, **options: Any) -> Any:
        if step == 10:
            raise InterruptedError
        return original(batches, stage, step, **options)

    with monkeypatch.context() as patched, pytest.raises(InterruptedError):
        patched.setattr(Batches, "draw", cut)
        run(recipe, store, tmp_path / "cut", loop)
    outcome = run(recipe, store, tmp_path / "cut", loop, resume=True)
    assert outcome.steps == STEPS
    one, two = ([line["total"] for line in read_log(tmp_path / name / "log.jsonl")] for name in ("whole", "cut"))
    assert len(one) == len(two) == STEPS
    assert one == pytest.approx(two, rel=1e-3)


@pytest.mark.usefixtures("_exact")
def test_two_dimensional_layers_equal_those_of_a_cpu() -> None:
    """Except that a bias before a norm gets no gradient."""
    torch.manual_seed(0)
    layer, x, results = Convolution2d(3, 16), torch.randn(2, 3, 6, 10), []
    for device in (torch.device("cpu"), GPU):
        layer.to(device)
        result = Interpolation2d()(layer(x.to(device)))
        results.append(
            (result, *torch.autograd.grad(result.square().sum(), list(layer.parameters()), allow_unused=True))
        )
    (expected, gradient, _), (found, other, of_bias) = results
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(other.cpu(), gradient, rtol=1e-4, atol=1e-3)
    assert of_bias is None


def test_the_time_between_marks_is_part_of_the_waiting_time_of_the_host() -> None:
    x, before = torch.ones(512, 512, device=GPU), perf_counter()
    begin = Mark(GPU)
    for _ in range(10):
        x = x @ x / 512
    seconds = Mark(GPU).seconds_since(begin)
    assert 0 < seconds <= perf_counter() - before


def test_the_usual_step_runs_none_of_our_kernels(volumes: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = wide("vnet-bn")
    way = UsualTrainer(subject_of(recipe, volumes, GPU))
    batches = Batches(volumes, recipe.batches, seed=recipe.seed, device=GPU)
    for name in ("convolve", "halve", "double"):
        monkeypatch.setattr(convolution, name, None)
    steps = (batches.at(0, step) for step in range(2))
    assert time_whole(way, steps, warm_up=1, steps=1) > 0


def test_a_plan_times_replays_of_a_captured_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The capture and one replay come before the timed replays."""
    replays: list[torch.cuda.CUDAGraph] = []
    replay = torch.cuda.CUDAGraph.replay

    def counted(graph: torch.cuda.CUDAGraph) -> None:
        replays.append(graph)
        replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    (seconds,) = probe.seconds_per_step([wide("vnet-bn")], 1, 2, GPU)
    assert 0 < seconds < probe.MAX_SECONDS
    assert len(replays) == 2 + probe.TIMED_STEPS
