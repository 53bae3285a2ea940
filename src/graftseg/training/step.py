"""One step of a stage: drawn on the host, run on the device, on a GPU as a captured graph that is replayed.

Everything that differs from step to step travels to the device in one table: what was drawn for the batch, how far the
stage is and the learning rates. All else is the same sequence of kernels, so that a graph of them can be replayed.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from graftseg.core.devices import has_triton
from graftseg.core.types import Batch, Objective, Precision, Progress
from graftseg.data.augment import Table
from graftseg.methods import Method
from graftseg.ops.optimizers import learning_rate, rate_on_device, update
from graftseg.recipes.settings import StageSettings
from graftseg.training.clock import StepClock

WARM_UP = 3
AHEAD = 8
PAYS_OFF = 3000
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Way:
    """How a step is run. None of it changes what is computed, but ``precision``."""

    precision: Precision = "float32"
    compiled: bool = False
    captured: bool = False

    @classmethod
    def chosen(
        cls, precision: Precision, device: torch.device, steps: int, *, compiled: bool | None, captured: bool | None
    ) -> "Way":
        """What was asked for, and where nothing was, what pays off: both on a GPU, compiling in a long stage.

        Without a compiler for kernels neither works: components are then found on the host, in the middle of a step.
        """
        gpu = device.type == "cuda" and has_triton()
        long = gpu and steps >= PAYS_OFF
        return cls(precision, long if compiled is None else compiled, gpu and captured is not False)


@dataclass(frozen=True)
class Stepped:
    """What a step leaves: the names of its terms, and on the device their values and, last, the total."""

    names: tuple[str, ...]
    values: Tensor = field(repr=False)
    shows: dict[str, Tensor] = field(repr=False, default_factory=dict)


class Source(Protocol):
    """Where the batches of a stage come from, as ``data.batches.Batches`` says it."""

    @property
    def device(self) -> torch.device:
        """Where batches lie."""

    @property
    def resident(self) -> bool:
        """Whether a batch comes out of the device's own memory, as a captured step needs it."""

    def at(self, stage: int, step: int, *, unlabeled: bool = True) -> Batch:
        """The batch of a step."""

    def draw(self, stage: int, step: int, *, unlabeled: bool = True) -> Table:
        """All that is drawn for a step, on the host."""

    def gather(self, table: Tensor) -> Batch:
        """The batch of a table on the device."""


class Stepper:
    """Runs the steps of one stage."""

    def __init__(
        self,
        method: Method,
        optimizers: Mapping[str, torch.optim.Optimizer],
        stage: StageSettings,
        batches: Source,
        way: Way,
        clock: StepClock,
        *,
        index: int,
    ) -> None:
        self.method, self.optimizers, self.stage, self.index = method, optimizers, stage, index
        self._batches, self._clock = batches, clock
        self.precision = precise(way.precision, type(method), batches.device)
        if self.precision != way.precision and has_bf16(batches.device):
            told = "stage %d: method %s computes in %s, whatever loop.precision is"
            logger.warning(told, index + 1, stage.method, self.precision)
        # all batches of a stage are of one shape, so that the search for the fastest convolution is made once
        torch.backends.cudnn.benchmark = batches.device.type == "cuda"
        if way.compiled:
            method.accelerate()
        can_capture = way.captured and method.capturable and batches.resident
        self._graph = _Graph(batches.device) if can_capture else None
        self._rates: dict[str, Tensor] = {}
        self._gather = batches.gather
        if self._graph is not None:
            if way.compiled:
                self._gather = torch.compile(batches.gather, dynamic=False, options=method.compiler_options)
            self._rates = {name: rate_on_device(optimizer) for name, optimizer in optimizers.items()}

    def __call__(self, step: int) -> Stepped:
        """Run a step and return what it leaves, without waiting for the device."""
        stepped = self._eager(step) if self._graph is None else self._captured(self._graph, step)
        self._clock.tick()
        return stepped

    def _eager(self, step: int) -> Stepped:
        with self._clock.phase("batch"):
            batch = self._batches.at(self.index, step, unlabeled=self.method.uses_unlabeled)
        now = Progress(torch.full((), step, device=self._batches.device), self.stage.steps)
        return self._step(batch, now, step)

    def _captured(self, graph: "_Graph", step: int) -> Stepped:
        """The first steps warm up; then one is captured, and from there on it is replayed."""
        with self._clock.phase("batch"):
            graph.load(self._table(step))
        with self._clock.phase("step"):
            stepped: Stepped = graph.run(self._on_device)
        return Stepped(stepped.names, stepped.values.clone(), stepped.shows)

    def _table(self, step: int) -> Table:
        """What was drawn, and as the last row the step and the learning rates."""
        drawn = self._batches.draw(self.index, step, unlabeled=self.method.uses_unlabeled)
        last = np.zeros((1, drawn.shape[1]))
        last[0, 0] = step
        for place, name in enumerate(self._rates, start=1):
            last[0, place] = learning_rate(self.stage.optimizer_of(name), step, self.stage.steps)
        return np.concatenate([drawn, last])

    def _on_device(self, table: Tensor) -> Stepped:
        now = Progress(table[-1, 0].long(), self.stage.steps)
        for place, rate in enumerate(self._rates.values(), start=1):
            rate.copy_(table[-1, place])
        return self._step(self._gather(table[:-1]), now, None)

    def _step(self, batch: Batch, now: Progress, step: int | None) -> Stepped:
        """Every objective of the method in turn, then what follows; without ``step`` the rates are on the device."""
        pending, clock, objectives = self.method.objectives(batch, now), self._clock, []
        while True:
            with clock.phase("forward"), self._autocast():
                objective = next(pending, None)
            if objective is None:
                break
            optimizer, settings = self.optimizers[objective.updates], self.stage.optimizer_of(objective.updates)
            with clock.phase("backward"):
                optimizer.zero_grad(set_to_none=True)
                objective.total.backward()  # type: ignore[no-untyped-call]
            with clock.phase("update"):
                update(optimizer, settings, None if step is None else learning_rate(settings, step, now.total))
            objectives.append(objective)
        with clock.phase("update"):
            self.method.after_step(now)
        return _stepped(self.stage.method, objectives)

    def _autocast(self) -> torch.autocast:
        return autocast(self.precision, self._batches.device)


class _Graph:
    """A sequence of kernels that is captured once and replayed with other numbers in its table."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._kept: Any = None
        self._runs = 0
        self._table: Tensor | None = None
        self._staging: list[tuple[Tensor, torch.cuda.Event]] = []

    def load(self, table: Table) -> None:
        """Send a table after those before it; the host may be a few steps ahead of the device."""
        if self._table is None:
            self._table = torch.zeros(table.shape, dtype=torch.float64, device=self._device)
            slots = (torch.empty(table.shape, dtype=torch.float64, pin_memory=True) for _ in range(AHEAD))
            self._staging = [(slot, torch.cuda.Event()) for slot in slots]  # type: ignore[no-untyped-call]
        slot, sent = self._staging[self._runs % AHEAD]
        sent.synchronize()
        slot.numpy()[:] = table
        self._table.copy_(slot, non_blocking=True)
        sent.record(torch.cuda.current_stream(self._device))

    def run(self, function: Any) -> Any:
        """Call the function with the table, or replay what it did when it was captured."""
        self._runs += 1
        if self._graph is None and self._runs > WARM_UP:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._kept = function(self._table)
            self._graph = graph
        if self._graph is not None:
            self._graph.replay()
            return self._kept
        with self._beside():
            return function(self._table)

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """Work on another stream, as a warm-up for a capture has to."""
        main = torch.cuda.current_stream(self._device)
        self._side.wait_stream(main)
        with torch.cuda.stream(self._side):
            yield
        main.wait_stream(self._side)


def _stepped(method: str, objectives: list[Objective]) -> Stepped:
    named = [(name, term.detach()) for objective in objectives for name, term in objective.terms.items()]
    names = tuple(name for name, _ in named)
    if len(set(names)) < len(names):
        raise ValueError(f"method {method} has two terms of the same name among {list(names)}")
    total = torch.stack([objective.total.detach() for objective in objectives]).sum()
    shows = {name: tensor for objective in objectives for name, tensor in objective.shows.items()}
    return Stepped(names, torch.stack([*(term for _, term in named), total]), shows)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled networks as they were written: other modes and shapes are not worth a compilation."""
    with torch.compiler.set_stance("force_eager"):
        yield


def precise(precision: Precision, method: type[Method], device: torch.device) -> Precision:
    """The precision that was asked for, or the higher one that a method needs or a device is left with."""
    bears = method.least_precision == "bf16" and has_bf16(device)
    return precision if bears else "float32"


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """The precision that networks compute in.

    Without a cache of cast weights: it would be stale in a replayed graph, and where weights are first used without
    gradients, as for prototypes, older versions of PyTorch take no gradients from it later.
    """
    enabled = precision == "bf16" and has_bf16(device)
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def has_bf16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 by itself, rather than by emulation."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device.type == "cpu" and native is not None and bool(native())
