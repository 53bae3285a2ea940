"""The fast path and the plain path give the same losses to rounding over twenty steps of the same seed."""

from functools import partial
from pathlib import Path
from shutil import which
from sysconfig import get_path
from typing import Any

import pytest
import torch
from tiny import tiny_method, tiny_recipe
from torch import Tensor

from graftseg.core.run_folder import RunFolder, read_log
from graftseg.data.batches import Batches
from graftseg.data.store import Store
from graftseg.inference.model import build_method
from graftseg.methods import METHODS
from graftseg.networks.acceleration import compiler_options
from graftseg.recipes.recipe import Recipe
from graftseg.training import step as stepping
from graftseg.training.loop import Outcome, Stage, fit
from graftseg.training.step import StepMode
from stepping_fakes import ADAM, CPU, SGD, STEPS, StandIn, losses, stage_recipe, stepper_of

HAS_COMPILER = which("g++") is not None and (Path(get_path("include")) / "Python.h").is_file()
COMPILED = [
    ("unet-2d", "aot_eager"),
    ("vnet-bn", "aot_eager"),
    pytest.param(
        "vnet-bn", "inductor", marks=[pytest.mark.slow, pytest.mark.skipif(not HAS_COMPILER, reason="no g++")]
    ),
]
# the compiler asks every tensor for its gradient
LOOKS_FOR_GRADIENTS = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)


def assert_same_losses(one: Tensor, two: Tensor) -> None:
    assert one.shape == two.shape and len(one) == STEPS
    assert one.std() > 0.01, "a training in which nothing happens proves nothing"
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def store_of(recipe: Recipe, store: Store, volumes: Store) -> Store:
    return store if recipe.data.dimensions == 2 else volumes


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[Any]:
    """What is compiled, by the backend that the test names."""
    backend: str = request.param
    original, compiled = torch.compile, []

    def compile_with(function: Any, **options: Any) -> Any:
        compiled.append(function)
        return original(function, **options, backend=backend)

    monkeypatch.setattr(torch, "compile", compile_with)
    torch.compiler.reset()
    return compiled


@LOOKS_FOR_GRADIENTS
@pytest.mark.parametrize(("network", "compiles"), COMPILED, indirect=["compiles"])
@pytest.mark.slow
def test_compiled(network: str, compiles: list[Any], store: Store, volumes: Store) -> None:
    recipe = stage_recipe(network)
    data = store_of(recipe, store, volumes)
    plain = losses(stepper_of(recipe, data))
    assert not compiles
    fast = losses(stepper_of(recipe, data, StepMode(compiled=True)))
    assert len(compiles) == 4
    assert_same_losses(plain, fast)


@pytest.mark.parametrize("name", METHODS)
def test_networks_and_hot_functions_are_compiled_once_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[dict[str, Any]] = []

    def note(function: Any, **given: Any) -> Any:
        options.append(given)
        return function

    method = tiny_method(name, 2)
    compiled_functions = {attribute: getattr(method, attribute) for attribute in method.compiled_functions}
    assert compiled_functions and all(map(callable, compiled_functions.values()))
    monkeypatch.setattr(torch, "compile", note)
    method.accelerate()
    assert options == [{"dynamic": False, "options": None}] * (len(list(method.children())) + len(compiled_functions))
    assert {attribute: getattr(method, attribute) for attribute in method.compiled_functions} == compiled_functions


def test_small_kernels_are_merged_only_in_2d_on_a_gpu() -> None:
    assert compiler_options(2, torch.device("cuda")) == {"combo_kernels": True}
    assert compiler_options(3, torch.device("cuda")) is compiler_options(2, CPU) is None
    assert "combo_kernels" in torch._inductor.list_options()


def test_joint_forwards_equal_separate_ones_without_batch_statistics(volumes: Store) -> None:
    separate, joint = (losses(stepper_of(stage_recipe("vnet-in", joint=joint), volumes)) for joint in (False, True))
    assert_same_losses(separate, joint)


def test_joint_forwards_share_batch_statistics(store: Store) -> None:
    separate, joint = (losses(stepper_of(stage_recipe("unet-2d", joint=joint), store)) for joint in (False, True))
    assert (separate[0] - joint[0]).abs().max() > 1e-3


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    """Steps read a table and their rates from a tensor, as they do on a GPU."""
    monkeypatch.setattr(stepping, "_Graph", StandIn)
    monkeypatch.setattr(StandIn, "made", 0)
    return StandIn


@pytest.mark.parametrize(
    ("network", "method", "optimizer"),
    [
        ("unet-2d", "bcp", SGD),
        pytest.param("unet-2d", "bcp", ADAM, marks=pytest.mark.slow),
        pytest.param("unet-2d", "bcp", SGD | {"clip_gradient": 0.1}, marks=pytest.mark.slow),
        ("vnet-bn", "bcp", SGD),
        ("unet-2d", "bcp-pretrain", ADAM),
        ("vnet-in", "supervised", SGD | {"clip_gradient": 0.1}),
    ],
)
def test_a_table_on_the_device(
    network: str, method: str, optimizer: dict[str, Any], store: Store, volumes: Store, stand_in: type[StandIn]
) -> None:
    """With dropout: its random numbers are drawn in the same order."""
    recipe = stage_recipe(network, method, optimizer, dropout=True)
    data = store_of(recipe, store, volumes)
    eager, captured = (losses(stepper_of(recipe, data, StepMode(captured=way))) for way in (False, True))
    assert stand_in.made == 1
    assert torch.equal(eager[0], captured[0])
    assert_same_losses(eager, captured)


class PowerCutError(Exception):
    """Ends a run between two steps."""


class Cut(Batches):
    """Batches that fail when step ``cut`` of the last stage is drawn."""

    cut: int | None = None

    def draw(self, stage: int, step: int, *, unlabeled: bool = True) -> Any:
        if (stage, step) == (1, self.cut):
            raise PowerCutError
        return super().draw(stage, step, unlabeled=unlabeled)


def run(folder: Path, store: Store, *, cut: int | None = None, resume: bool = False) -> Outcome:
    recipe = tiny_recipe()
    stages = [
        recipe.stages[0],
        recipe.stages[1].model_copy(update={"steps": 10, "optimizer": stage_recipe("unet-2d").stages[0].optimizer}),
    ]
    torch.manual_seed(recipe.seed)
    batches = Cut(store, recipe.batches, seed=recipe.seed, device=CPU)
    batches.cut = cut
    build = partial(build_method, recipe, channels=store.channels, classes=len(store.classes), device=CPU)
    built = [Stage(stage, partial(build, stage)) for stage in stages]
    return fit(built, batches, RunFolder(folder), recipe.loop, device=CPU, resume=resume)


def capture(monkeypatch: pytest.MonkeyPatch, captured: bool) -> None:
    monkeypatch.setattr(StepMode, "chosen", lambda precision, *_, **__: StepMode(precision, captured=captured))


@pytest.mark.parametrize("cut", [0, 7, 8])
@pytest.mark.slow
def test_a_stopped_captured_run_resumes_exactly(
    cut: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: type[StandIn]
) -> None:
    capture(monkeypatch, True)
    whole = run(tmp_path / "whole", store).method.state_dict()
    with pytest.raises(PowerCutError):
        run(tmp_path / "cut", store, cut=cut)
    resumed = run(tmp_path / "cut", store, resume=True).method.state_dict()
    assert stand_in.made == 2 + 2 + 1 + (cut == 0)
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[key], resumed[key]) for key in whole)


@pytest.mark.parametrize("first", [False, True])
def test_a_run_can_resume_on_the_other_path(
    first: bool, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: type[StandIn]
) -> None:
    """A checkpoint of the fast path can be resumed on the plain path, as on another machine, and vice versa."""
    capture(monkeypatch, first)
    run(tmp_path / "whole", store)
    with pytest.raises(PowerCutError):
        run(tmp_path / "cut", store, cut=7)
    capture(monkeypatch, not first)
    run(tmp_path / "cut", store, resume=True)
    assert stand_in.made == (4 if first else 1)
    one, two = ([line["total"] for line in read_log(tmp_path / name / "log.jsonl")] for name in ("whole", "cut"))
    assert len(one) == 4 + 10
    assert one == pytest.approx(two, rel=1e-4)
