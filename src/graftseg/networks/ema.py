"""A teacher that is the exponential moving average (EMA) of its student, Eq. (10) of BCP: Θt <- λ Θt + (1 - λ) Θs."""

import copy
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

Scope = Literal["parameters", "state"]
Network = TypeVar("Network", bound=nn.Module)


def make_teacher(student: Network) -> Network:
    """Return a copy of the student, in the same mode, without gradients."""
    return copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def ema_update(teacher: nn.Module, student: nn.Module, decay: float | Tensor, scope: Scope) -> None:
    """Move the teacher toward the student, Eq. (10), in a few fused kernels without synchronizing with the host.

    - ``decay``: λ, a number or a 0-d float32 tensor on the networks' device. λ = 0 copies the student, λ = 1 changes
      nothing.
    - ``scope``: ``parameters`` leaves buffers unchanged, as published for the left atrium and the pancreas. ``state``
      also averages buffers, as published for ACDC.

    On a CPU, each floating-point tensor is bit-identical to ``λ * teacher + (1 - λ) * student``. Integer buffers (the
    batch count of a batch norm) are averaged in float32 and rounded toward zero.
    """
    targets, sources = _tensors(teacher, scope), _tensors(student, scope)
    pairs = list(zip(targets, sources, strict=True))
    floats = [pair for pair in pairs if pair[0].is_floating_point()]
    integers = [pair for pair in pairs if not pair[0].is_floating_point()]
    _average(floats, decay)
    if integers:
        counts = [target for target, _ in integers]
        target, source = _joined(counts), _joined([source for _, source in integers])
        _average([(target, source)], decay)
        parts = target.split_with_sizes([tensor.numel() for tensor in counts])
        torch._foreach_copy_(counts, [part.view_as(tensor) for part, tensor in zip(parts, counts, strict=True)])


def warmup_decay(step: Tensor, decay: float = 0.99) -> Tensor:
    """Return λ = min(1 - 1/(t + 1), ``decay``), a 0-d tensor on the device of ``step``.

    ``step`` is t, the number of previous updates. At t = 0 the teacher becomes a copy of the student. Until λ reaches
    ``decay``, the teacher is the mean of the student's weights after each step so far.
    """
    return torch.clamp(1 - 1 / (step + 1), max=decay)


def _tensors(network: nn.Module, scope: Scope) -> list[Tensor]:
    buffers = network.buffers() if scope == "state" else ()
    return [*network.parameters(), *buffers]


def _joined(tensors: list[Tensor]) -> Tensor:
    """Concatenate small tensors as float32, in two kernels instead of one per tensor."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).float()


def _average(pairs: list[tuple[Tensor, Tensor]], decay: float | Tensor) -> None:
    targets = [target for target, _ in pairs]
    torch._foreach_mul_(targets, decay)
    torch._foreach_add_(targets, torch._foreach_mul([source for _, source in pairs], 1 - decay))
