"""A training step: the host draws batch parameters, and the device computes the step, on a GPU with a CUDA graph.

Everything that changes between steps is sent to the device in one table: the drawn batch parameters, the step number
and the learning rates. All steps run the same kernels, so a step can be captured once in a CUDA graph and replayed.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from graftseg.core import ranks
from graftseg.core.devices import has_bf16, has_triton
from graftseg.core.errors import Code, UserError
from graftseg.core.types import Batch, Objective, Precision, Progress
from graftseg.data.augment import Table
from graftseg.methods import Method
from graftseg.ops.optimizers import apply_update, learning_rate, learning_rate_on_device
from graftseg.recipes.settings import StageSettings
from graftseg.training.clock import StepClock
from graftseg.training.several_ranks import RankStep

WARM_UP = 3
"""Number of eager steps before capture."""
AHEAD = 8
"""Maximum number of steps that the host is ahead of the device."""
COMPILE_FROM = 3000
"""Minimum number of steps of a stage for which compilation saves time."""
OUT_OF_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "Storage size calculation overflowed",
    "Overflow when unpacking long",
)
"""Fragments of PyTorch's messages about too little memory, or about a tensor that is too large for any memory."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepMode:
    """How a step is executed: with ``compiled`` networks, or ``captured`` in a CUDA graph.

    Both change the result only by rounding errors. With ``local_statistics``, the batch norms of each rank use only the
    images of this rank.
    """

    precision: Precision = "float32"
    compiled: bool = False
    captured: bool = False
    local_statistics: bool = False

    @classmethod
    def chosen(
        cls, precision: Precision, device: torch.device, steps: int, *, compiled: bool | None, captured: bool | None
    ) -> "StepMode":
        """Return the requested mode. By default (None), a GPU captures steps and compiles networks of long stages.

        Without Triton, no step is captured, because largest components are found on the host in the middle of a step.
        Several ranks neither compile nor capture, because they communicate in the middle of a step.
        """
        if ranks.count() > 1:
            return cls(precision)
        gpu = device.type == "cuda" and has_triton()
        long = gpu and steps >= COMPILE_FROM
        return cls(precision, long if compiled is None else compiled, gpu and captured is not False)


@dataclass(frozen=True)
class StepResult:
    """The loss terms of a step, and tensors for snapshots. ``values`` are the terms, then the total, on the device."""

    names: tuple[str, ...]
    values: Tensor = field(repr=False)
    shows: dict[str, Tensor] = field(repr=False, default_factory=dict)


class Source(Protocol):
    """A source of batches; implemented by ``data.batches.Batches``."""

    @property
    def device(self) -> torch.device:
        """The device of the batches."""

    @property
    def resident(self) -> bool:
        """Whether batches are gathered from device memory, which a captured step requires."""

    def at(self, stage: int, step: int, *, unlabeled: bool = True) -> Batch:
        """Return the batch of a step."""

    def draw(self, stage: int, step: int, *, unlabeled: bool = True) -> Table:
        """Draw the batch parameters of a step on the host."""

    def gather(self, table: Tensor) -> Batch:
        """Gather the batch that a table on the device describes."""


class Stepper:
    """Run the steps of one stage."""

    def __init__(
        self,
        method: Method,
        optimizers: Mapping[str, torch.optim.Optimizer],
        stage: StageSettings,
        batches: Source,
        mode: StepMode,
        clock: StepClock,
        *,
        index: int,
    ) -> None:
        self.method, self.optimizers, self.stage, self.index = method, optimizers, stage, index
        self._batches, self._clock = batches, clock
        self.precision = effective_precision(mode.precision, type(method), batches.device)
        if self.precision != mode.precision and has_bf16(batches.device):
            message = "stage %d: method %s always computes in %s; loop.precision is ignored"
            logger.warning(message, index + 1, stage.method, self.precision)
        # all batches of a stage have the same shape, so the fastest convolution is searched for only once
        torch.backends.cudnn.benchmark = batches.device.type == "cuda"
        if mode.compiled:
            method.accelerate()
        can_capture = mode.captured and method.capturable and batches.resident
        self._graph = _Graph(batches.device) if can_capture else None
        self._ranks = None if ranks.count() == 1 else RankStep(method, batches.device, local=mode.local_statistics)
        self._rates: dict[str, Tensor] = {}
        self._gather = batches.gather
        if self._graph is not None:
            if mode.compiled:
                self._gather = torch.compile(batches.gather, dynamic=False, options=method.compiler_options)
            self._rates = {name: learning_rate_on_device(optimizer) for name, optimizer in optimizers.items()}

    def __call__(self, step: int) -> StepResult:
        """Run a step and return its result without waiting for the device."""
        result = self._eager(step) if self._graph is None else self._captured(self._graph, step)
        self._clock.tick()
        return result

    def _eager(self, step: int) -> StepResult:
        with self._clock.phase("batch"):
            batch = self._batches.at(self.index, step, unlabeled=self.method.uses_unlabeled)
        now = Progress(torch.full((), step, device=self._batches.device), self.stage.steps)
        if self._ranks is None:
            return self._step(batch, now, step)
        self._ranks.begin(self.index, step)
        result = self._step(batch, now, step)
        return replace(result, values=self._ranks.end(result.values))

    def _averaged(self, module: str) -> AbstractContextManager[None]:
        """Return a context in which backward averages the gradients of a module over ranks."""
        return nullcontext() if self._ranks is None else self._ranks.averaged_gradients(module)

    def _captured(self, graph: "_Graph", step: int) -> StepResult:
        """Run the first steps as a warm-up, capture the next step, and replay it from then on."""
        with self._clock.phase("batch"):
            graph.load(self._table(step))
        with self._clock.phase("step"):
            result: StepResult = graph.run(self._on_device)
        return StepResult(result.names, result.values.clone(), result.shows)

    def _table(self, step: int) -> Table:
        """Return the drawn batch parameters; the last row has the step number and the learning rates."""
        drawn = self._batches.draw(self.index, step, unlabeled=self.method.uses_unlabeled)
        last = np.zeros((1, drawn.shape[1]))
        last[0, 0] = step
        for column, name in enumerate(self._rates, start=1):
            last[0, column] = learning_rate(self.stage.optimizer_of(name), step, self.stage.steps)
        return np.concatenate([drawn, last])

    def _on_device(self, table: Tensor) -> StepResult:
        now = Progress(table[-1, 0].long(), self.stage.steps)
        for column, rate in enumerate(self._rates.values(), start=1):
            rate.copy_(table[-1, column])
        return self._step(self._gather(table[:-1]), now, None)

    def _step(self, batch: Batch, now: Progress, step: int | None) -> StepResult:
        """Optimize the objectives one after the other; if ``step`` is None, the learning rates are on the device."""
        pending, clock, objectives = self.method.objectives(batch, now), self._clock, []
        while True:
            with clock.phase("forward"), autocast(self.precision, self._batches.device):
                objective = next(pending, None)
            if objective is None:
                break
            optimizer, settings = self.optimizers[objective.updates], self.stage.optimizer_of(objective.updates)
            with clock.phase("backward"):
                optimizer.zero_grad(set_to_none=True)
                with self._averaged(objective.updates):
                    objective.total.backward()  # type: ignore[no-untyped-call]
            with clock.phase("update"):
                apply_update(optimizer, settings, None if step is None else learning_rate(settings, step, now.total))
            objectives.append(objective)
        with clock.phase("update"):
            self.method.after_step(now)
        return _result_of(self.stage.method, objectives)


class _Graph:
    """A CUDA graph that is captured once and replayed with different values in its table."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None
        self._runs = 0
        self._table: Tensor | None = None
        self._staging: list[tuple[Tensor, torch.cuda.Event]] = []

    def load(self, table: Table) -> None:
        """Send a table to the device; the host may run up to ``AHEAD`` steps ahead."""
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
        """Call the function with the table in the first steps; later capture the call once and replay it."""
        self._runs += 1
        if self._graph is None and self._runs > WARM_UP:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._result = function(self._table)
            self._graph = graph
        if self._graph is not None:
            self._graph.replay()
            return self._result
        with self._side_stream():
            return function(self._table)

    @contextmanager
    def _side_stream(self) -> Iterator[None]:
        """Run the block on a side stream, as CUDA requires for a warm-up before capture."""
        main = torch.cuda.current_stream(self._device)
        self._side.wait_stream(main)
        with torch.cuda.stream(self._side):
            yield
        main.wait_stream(self._side)


def _result_of(method: str, objectives: list[Objective]) -> StepResult:
    named = [(name, term.detach()) for objective in objectives for name, term in objective.terms.items()]
    names = tuple(name for name, _ in named)
    if len(set(names)) < len(names):
        raise ValueError(f"method {method} has two terms of the same name among {list(names)}")
    total = torch.stack([objective.total.detach() for objective in objectives]).sum()
    shows = {name: tensor for objective in objectives for name, tensor in objective.shows.items()}
    return StepResult(names, torch.stack([*(term for _, term in named), total]), shows)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled networks in eager mode. Scoring and snapshots use other shapes, which are not worth compiling."""
    with torch.compiler.set_stance("force_eager"):
        yield


def effective_precision(precision: Precision, method: type[Method], device: torch.device) -> Precision:
    """Return the requested precision, or float32 if the method or the device does not support it."""
    supported = method.min_precision == "bf16" and has_bf16(device)
    return precision if supported else "float32"


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """Return the autocast context for a precision, without a cache of cast weights.

    A cache would be stale in a replayed graph. Older versions of PyTorch also lose gradients if a cached weight was
    first used without gradients, as in the update of prototypes.
    """
    enabled = precision == "bf16" and has_bf16(device)
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


@contextmanager
def reporting_out_of_memory(device: torch.device) -> Iterator[None]:
    """Turn out-of-memory errors into a UserError."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        is_known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not is_known and not any(part in str(error) for part in OUT_OF_MEMORY):
            raise
        remedy = "start a new run with lower batches.labeled, batches.unlabeled, batches.patch or network.width"
        raise UserError(Code.OUT_OF_MEMORY, device.type, "out of memory", remedy) from None
