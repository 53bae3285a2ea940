"""Captured and compiled steps: no method synchronizes with the host, and compilation does not change results.

No GPU is needed for the first: tensors on the device ``meta`` have no values, so reading a value or a data-dependent
shape fails. Operations on host tensors are recorded.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tiny import SIDE, tiny_batch, tiny_method
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graftseg.core.types import Batch, Labeled, Objective, Progress
from graftseg.methods import METHODS, Method
from graftseg.ops import distances as signed_distance
from graftseg.ops import pseudo_labels
from graftseg.ops.distances import squared_distance_to


class HostWork(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records operations on host tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = (leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor))
        if any(tensor.device.type == "cpu" for tensor in tensors):
            self.found.add(str(func))
        return result


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace two functions that use the host on a CPU by their GPU versions; they have their own tests."""
    monkeypatch.setattr(pseudo_labels, "largest_components", lambda labels, *_, **__: labels)
    monkeypatch.setattr(signed_distance, "distance_to", lambda masks: squared_distance_to(masks).sqrt())


def host_work(build: Callable[[], Method], dimensions: int) -> set[str]:
    with torch.device("meta"):
        method = build().to("meta")
    batch = tiny_batch(dimensions, side=SIDE)
    labeled = Labeled(batch.labeled.images.to("meta"), batch.labeled.labels.to("meta"))
    batch, now = Batch(labeled, batch.unlabeled.to("meta")), Progress(torch.zeros((), device="meta"), 10)
    work = HostWork()
    with work:
        for objective in method.objectives(batch, now):
            objective.total.backward()  # type: ignore[no-untyped-call]
        method.after_step(now)
    return work.found


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("dimensions", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.capturable])
def test_step_uses_no_host_tensors(name: str, dimensions: int) -> None:
    assert host_work(lambda: tiny_method(name, dimensions), dimensions) == set()


class Waiting(Method):
    """A method that reads a value from the device."""

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        loss = self.student(batch.labeled.images).square().mean()
        yield Objective("student", {"loss": loss * (2 if loss.item() > 1 else 1)})


class Copying(Method):
    """A method that copies a value from the host."""

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        loss = self.student(batch.labeled.images).square().mean()
        yield Objective("student", {"loss": loss * torch.tensor([2.0, 3.0]).to(loss.device).sum()})


def test_host_synchronization_and_copies_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, method in (("waiting", Waiting), ("copying", Copying)):
        monkeypatch.setitem(METHODS, name, method)
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        host_work(lambda: tiny_method("waiting", 2), 2)
    assert "aten._to_copy.default" in host_work(lambda: tiny_method("copying", 2), 2)


def first_losses(name: str, *, compiled: bool) -> list[Tensor]:
    method, batch = tiny_method(name, 2), tiny_batch(2, side=SIDE)
    if compiled:
        torch.compiler.reset()
        method.accelerate()
    torch.manual_seed(1)
    losses = []
    for objective in method.objectives(batch, Progress(torch.tensor(5), 10)):
        method.zero_grad()
        objective.total.backward()  # type: ignore[no-untyped-call]
        losses += [objective.total.detach(), nn.utils.get_total_norm(gradients_of(method))]
    return losses


def gradients_of(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


@pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.slow
def test_compiled_step_equals_uncompiled_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward are traced as a whole; generated kernels are not tested."""
    compile_with = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **options: compile_with(f, **options | {"backend": "aot_eager"}))
    torch._dynamo.utils.counters.clear()
    losses, others = first_losses(name, compiled=False), first_losses(name, compiled=True)
    torch.testing.assert_close(others, losses, rtol=1e-5, atol=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
    assert not torch._dynamo.utils.counters["graph_break"]
