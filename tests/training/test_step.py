"""How a step runs: its mode, the copies to the device, and when it is captured and replayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import tiny_networks, tiny_recipe
from torch import Tensor, nn

from graftseg.core.run_folder import RunFolder
from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.data.batches import Batches
from graftseg.data.store import Store
from graftseg.inference.model import build_method
from graftseg.methods import Method
from graftseg.methods.bcp import Bcp
from graftseg.networks import Networks
from graftseg.ops.optimizers import Adam, Poly, Sgd
from graftseg.recipes.settings import LoopSettings, StageSettings
from graftseg.training import step as stepping
from graftseg.training.loop import Stage, fit
from graftseg.training.step import AHEAD, COMPILE_FROM, WARM_UP, StepMode, uncompiled
from stepping_fakes import CPU, StandIn, batches_for, losses, stage_recipe, stepper_for, stepper_of

CUDA = torch.device("cuda:0")


@pytest.mark.parametrize(
    ("device", "steps", "compiled", "captured", "way"),
    [
        (CUDA, COMPILE_FROM, None, None, (True, True)),
        (CUDA, COMPILE_FROM - 1, None, None, (False, True)),
        (CUDA, COMPILE_FROM - 1, True, None, (True, True)),
        (CUDA, COMPILE_FROM, False, None, (False, True)),
        (CUDA, COMPILE_FROM, None, False, (True, False)),
        (CUDA, 1, None, True, (False, True)),
        (CUDA, COMPILE_FROM, False, False, (False, False)),
        (CPU, COMPILE_FROM, None, None, (False, False)),
        (CPU, COMPILE_FROM, None, True, (False, False)),
        (CPU, 1, True, True, (True, False)),
        (CPU, COMPILE_FROM, False, False, (False, False)),
    ],
)
def test_the_chosen_mode(
    device: torch.device,
    steps: int,
    compiled: bool | None,
    captured: bool | None,
    way: tuple[bool, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stepping, "has_triton", lambda: True)
    chosen = StepMode.chosen("bf16", device, steps, compiled=compiled, captured=captured)
    assert (chosen.precision, chosen.compiled, chosen.captured) == ("bf16", *way)


def test_without_triton_nothing_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Components would be copied to the host in the middle of a captured step."""
    monkeypatch.setattr(stepping, "has_triton", lambda: False)
    assert StepMode.chosen("bf16", CUDA, COMPILE_FROM, compiled=None, captured=None) == StepMode("bf16")


def test_the_loop_passes_on_what_was_set(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def note(*given: Any, **settings: Any) -> StepMode:
        seen.append((*given, settings))
        return StepMode()

    monkeypatch.setattr(StepMode, "chosen", note)
    recipe = tiny_recipe()
    loop = LoopSettings(precision="bf16", compiled=False, captured=True, tensorboard=False, snapshots=0)
    build = partial(build_method, recipe, channels=1, classes=len(store.classes), device=CPU)
    stages = [Stage(stage, partial(build, stage)) for stage in recipe.stages]
    fit(stages, batches_for(recipe, store), RunFolder(tmp_path), loop, device=CPU)
    asked = {"compiled": False, "captured": True}
    assert seen == [("bf16", CPU, 4, asked), ("bf16", CPU, 5, asked)]
    assert (LoopSettings().compiled, LoopSettings().captured) == (None, None)


class FakeCuda:
    """A device that runs calls immediately, but only records them while a graph is captured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.capturing: list[Callable[[], object]] | None = None
        self.current = Stream(self, "main")
        empty, cuda = torch.empty, torch.cuda
        monkeypatch.setattr(torch, "empty", lambda *size, pin_memory=False, **kind: empty(*size, **kind))
        monkeypatch.setattr(cuda, "Stream", lambda device: Stream(self, "side"))
        monkeypatch.setattr(cuda, "Event", lambda: Event(self))
        monkeypatch.setattr(cuda, "CUDAGraph", lambda: Graph(self))
        monkeypatch.setattr(cuda, "current_stream", lambda device: self.current)
        monkeypatch.setattr(cuda, "stream", self.on)
        monkeypatch.setattr(cuda, "graph", self.capture)
        self.events = 0

    def launch(self, work: Callable[[], object]) -> None:
        """What a kernel does."""
        if self.capturing is None:
            self.log.append(f"run on {self.current.name}")
            work()
        else:
            self.capturing.append(work)

    @contextmanager
    def on(self, stream: "Stream") -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def capture(self, graph: "Graph") -> Iterator[None]:
        self.log.append("capture")
        self.capturing = graph.work
        yield
        self.capturing = None


class Stream:
    def __init__(self, device: FakeCuda, name: str) -> None:
        self.device, self.name = device, name

    def wait_stream(self, other: "Stream") -> None:
        self.device.log.append(f"{self.name} waits for {other.name}")


class Event:
    def __init__(self, device: FakeCuda) -> None:
        self.device, self.number = device, device.events
        device.events += 1

    def synchronize(self) -> None:
        self.device.log.append(f"wait {self.number}")

    def record(self, stream: Stream) -> None:
        self.device.log.append(f"sent {self.number} on {stream.name}")


class Graph:
    def __init__(self, device: FakeCuda) -> None:
        self.device = device
        self.work: list[Callable[[], object]] = []

    def replay(self) -> None:
        self.device.log.append("replay")
        for work in self.work:
            work()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


def replayed(cuda: FakeCuda, count: int) -> tuple[list[float], int, Any]:
    """What a graph makes of tables that hold 0, 1, 2, ..., how often its function was called, and the graph."""
    graph, out, calls = stepping._Graph(CPU), torch.zeros(()), []

    def work(table: Tensor) -> Tensor:
        calls.append(table)
        cuda.launch(lambda: out.copy_(table.sum()))
        return out

    results = []
    for step in range(count):
        graph.load(np.full((2, 3), float(step)))
        results.append(float(graph.run(work)))
    assert len({id(table) for table in calls}) == 1, "the table stays where it is"
    return results, len(calls), graph


def test_steps_warm_up_then_one_is_captured_then_all_are_replayed(cuda: FakeCuda) -> None:
    results, calls, _ = replayed(cuda, 20)
    assert results == [6.0 * step for step in range(20)]
    assert calls == WARM_UP + 1
    done = [line for line in cuda.log if not line.startswith(("wait ", "sent "))]
    warm_up = ["side waits for main", "run on side", "main waits for side"]
    assert done == warm_up * WARM_UP + ["capture"] + ["replay"] * (20 - WARM_UP)


def test_a_slot_is_reused_only_after_its_copy_has_finished(cuda: FakeCuda) -> None:
    *_, graph = replayed(cuda, 2 * AHEAD + 3)
    traffic = [line for line in cuda.log if line.startswith(("wait ", "sent "))]
    turns = [step % AHEAD for step in range(2 * AHEAD + 3)]
    assert traffic == [line for turn in turns for line in (f"wait {turn}", f"sent {turn} on main")]
    last = [2 * AHEAD, 2 * AHEAD + 1, 2 * AHEAD + 2, *range(AHEAD + 3, 2 * AHEAD)]
    assert [float(slot[0, 0]) for slot, _ in graph._staging] == last
    assert len({slot.data_ptr() for slot, _ in graph._staging}) == AHEAD


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "_Graph", StandIn)
    monkeypatch.setattr(StandIn, "made", 0)


class Duel(Method):
    """A student and a critic. The test names the term of the critic."""

    trained_modules = ("student", "critic")
    uses_unlabeled = False
    term = "L_critic"

    def __init__(self, config: Settings, networks: Networks) -> None:
        super().__init__(config, networks)
        self.critic = nn.Linear(1, 1)
        self.steps: list[int] = []

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        self.steps.append(int(now.step))
        yield Objective("student", {"L_student": self.student(batch.labeled.images).square().mean()})
        yield Objective("critic", {self.term: self.critic(torch.ones(1, 1)).square().sum()})


DUEL = StageSettings(
    method="duel", steps=4, optimizer=Sgd(schedule=Poly(power=1.0)), optimizers={"critic": Adam(learning_rate=0.25)}
)


def test_the_table_contains_draws_step_and_learning_rates(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    batches = batches_for(tiny_recipe(), store)
    stepper = stepper_for(Duel(Settings(), tiny_networks(2)), DUEL, batches, StepMode(captured=True))
    table, drawn = stepper._table(2), batches.draw(0, 2, unlabeled=False)
    assert np.array_equal(table[:-1], drawn) and len(drawn) == 2
    assert table[-1].tolist() == [2.0, 0.005, 0.25] + [0.0] * (drawn.shape[1] - 3)
    with_others = stepper_of(stage_recipe("unet-2d"), store, StepMode(captured=True))
    assert len(with_others._table(0)) == 2 + 2 + 1


def test_step_and_rates_are_read_from_the_table(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    method = Duel(Settings(), tiny_networks(2))
    stepper = stepper_for(method, DUEL, batches_for(tiny_recipe(), store), StepMode(captured=True))
    rates = []
    for step in (0, 3, 1):
        stepped = stepper(step)
        rates.append(
            [round(float(stepper.optimizers[name].param_groups[0]["lr"]), 6) for name in method.trained_modules]
        )
    assert method.steps == [0, 3, 1]
    assert rates == [[0.01, 0.25], [0.0025, 0.25], [0.0075, 0.25]]
    assert stepped.names == ("L_student", "L_critic")
    first, second, total = stepped.values.tolist()
    assert total == pytest.approx(first + second)


def test_values_outlive_the_next_replay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    stepper = stepper_of(stage_recipe("unet-2d"), store, StepMode(captured=True))
    first = stepper(0).values
    before = first.clone()
    assert not torch.equal(stepper(1).values, before)
    assert torch.equal(first, before)


def test_two_terms_of_one_name_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Duel, "term", "L_student")
    stepper = stepper_for(Duel(Settings(), tiny_networks(2)), DUEL, batches_for(tiny_recipe(), store), StepMode())
    with pytest.raises(ValueError, match=r"method duel has two terms of the same name among \['L_student', 'L_student"):
        stepper(0)


@pytest.mark.parametrize("owner", [None, Bcp, Batches])
def test_what_cannot_be_captured_is_not(owner: type | None, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    if owner is not None:
        monkeypatch.setattr(owner, "capturable" if owner is Bcp else "resident", False)
    stepper = stepper_of(stage_recipe("unet-2d"), store, StepMode(captured=True))
    assert len(losses(stepper, range(2))) == 2
    assert StandIn.made == (owner is None)
    assert isinstance(stepper.optimizers["student"].param_groups[0]["lr"], Tensor) is (owner is None)


def test_the_search_for_the_fastest_convolution_is_left_to_gpus(store: Store) -> None:
    torch.backends.cudnn.benchmark = True
    stepper_of(stage_recipe("unet-2d"), store)
    assert torch.backends.cudnn.benchmark is False


class Twice(nn.Module):
    """A module of our own: the compiler leaves those of PyTorch alone."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_uncompiled_runs_the_original_module() -> None:
    compiled: list[Any] = []
    ran: list[str] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(inputs)

        def run(*given: Any) -> Any:
            ran.append("compiled")
            return graph(*given)

        return run

    module = Twice()
    module.compile(backend=backend, dynamic=False)
    x, wider = torch.ones(1, 2), torch.ones(3, 2)
    expected = module(x)
    assert (len(compiled), ran) == (1, ["compiled"])
    with uncompiled():
        assert torch.equal(module(x), expected)
        assert module(wider).shape == (3, 2)
    assert (len(compiled), ran) == (1, ["compiled"]), "nothing compiled was run, and nothing was compiled"
    module(x)
    assert (len(compiled), ran) == (1, ["compiled"] * 2)
