"""A teacher that is the running average of its student, Eq. (10): Θt <- λ Θt + (1 - λ) Θs."""

import copy
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

Scope = Literal["parameters", "state"]
Network = TypeVar("Network", bound=nn.Module)


def make_teacher(student: Network) -> Network:
    """A copy of the student, in the same mode, that no gradient reaches."""
    return copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def ema_update(teacher: nn.Module, student: nn.Module, decay: float | Tensor, scope: Scope) -> None:
    """Move the teacher towards the student, Eq. (10), in a few fused kernels, without waiting for the host.

    ``scope="parameters"`` averages the parameters and leaves the buffers alone, as published for the left
    atrium and the pancreas. ``scope="state"`` averages the buffers too, as published for ACDC; an integer
    buffer (the count of batches in a batch norm) is averaged in float32 and rounded towards zero when stored.

    ``decay`` is λ, a number or a 0-d float32 tensor on the networks' device. On a CPU the result equals, bit
    for bit, ``λ * teacher + (1 - λ) * student`` of each tensor alone; λ = 0 copies, λ = 1 changes nothing.
    """
    targets, sources = _tensors(teacher, scope), _tensors(student, scope)
    pairs = list(zip(targets, sources, strict=True))
    floats = [pair for pair in pairs if pair[0].is_floating_point()]
    integers = [pair for pair in pairs if not pair[0].is_floating_point()]
    _average(floats, decay)
    if integers:
        whole = [target for target, _ in integers]
        target, source = _joined(whole), _joined([source for _, source in integers])
        _average([(target, source)], decay)
        parts = target.split_with_sizes([tensor.numel() for tensor in whole])
        torch._foreach_copy_(whole, [part.view_as(tensor) for part, tensor in zip(parts, whole, strict=True)])


def warmup_decay(step: Tensor, decay: float = 0.99) -> Tensor:
    """λ = min(1 - 1/(t + 1), ``decay``), a 0-d tensor on the step's device.

    ``step`` is t, the number of updates made before this one. At t = 0 the teacher becomes a copy of the
    student; until the cap is reached it is the plain mean of all students so far.
    """
    return torch.clamp(1 - 1 / (step + 1), max=decay)


def _tensors(network: nn.Module, scope: Scope) -> list[Tensor]:
    buffers = network.buffers() if scope == "state" else ()
    return [*network.parameters(), *buffers]


def _joined(tensors: list[Tensor]) -> Tensor:
    """All numbers of small tensors in one, as float32: two kernels instead of one for each tensor."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).float()


def _average(pairs: list[tuple[Tensor, Tensor]], decay: float | Tensor) -> None:
    targets = [target for target, _ in pairs]
    torch._foreach_mul_(targets, decay)
    torch._foreach_add_(targets, torch._foreach_mul([source for _, source in pairs], 1 - decay))
