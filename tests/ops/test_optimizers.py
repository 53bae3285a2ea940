"""Optimizers compared with their formulas, by hand."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from graftseg.ops.optimizers import (
    Adam,
    Poly,
    Sgd,
    TrainedModule,
    apply_update,
    build_optimizer,
    carry_over_momentum,
    learning_rate,
    learning_rate_on_device,
    load_optimizer_state,
)


class Weights(nn.Module):
    """A trainable and a frozen weight."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.moved = nn.Parameter(torch.tensor(values))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)


def step(
    module: Weights, optimizer: torch.optim.Optimizer, settings: Sgd | Adam, *gradient: float, at: int = 0
) -> list[float]:
    """Return the weights after one update with a given gradient."""
    module.moved.grad = torch.tensor(gradient)
    apply_update(optimizer, settings, learning_rate(settings, at, 4))
    values: list[float] = module.moved.tolist()
    return values


def test_sgd_by_hand() -> None:
    module, settings = Weights(1.0), Sgd(learning_rate=0.5, momentum=0.9, weight_decay=0.1)
    optimizer = build_optimizer(module, settings)
    assert isinstance(optimizer, torch.optim.SGD)
    # decayed gradient 2 + 0.1 * 1 = 2.1
    assert step(module, optimizer, settings, 2.0) == pytest.approx([1 - 0.5 * 2.1])
    # decayed gradient 1 - 0.1 * 0.05 = 0.995, momentum 0.9 * 2.1 + 0.995 = 2.885
    assert step(module, optimizer, settings, 1.0) == pytest.approx([-0.05 - 0.5 * 2.885])


def test_adam_by_hand() -> None:
    module, settings = Weights(1.0), Adam(learning_rate=0.1, betas=(0.5, 0.75), weight_decay=0.5)
    optimizer = build_optimizer(module, settings)
    assert isinstance(optimizer, torch.optim.Adam)
    # decayed gradient 1.5 + 0.5 * 1 = 2, moments 1 and 1, bias-corrected 2 and 4
    assert step(module, optimizer, settings, 1.5) == pytest.approx([1 - 0.1 * 2 / 2])
    # decayed gradient 0.55 + 0.5 * 0.9 = 1, moments 1 and 1, bias-corrected 4/3 and 16/7
    assert step(module, optimizer, settings, 0.55) == pytest.approx([0.9 - 0.1 * (4 / 3) / math.sqrt(16 / 7)])


@pytest.mark.parametrize("settings", [Sgd(), Adam()])
def test_only_trainable_parameters_are_updated(settings: Sgd | Adam) -> None:
    module = Weights(1.0)
    optimizer = build_optimizer(module, settings)
    (group,) = optimizer.param_groups
    (parameter,) = group["params"]
    assert parameter is module.moved
    assert step(module, optimizer, settings, 2.0) != [1.0]
    assert module.frozen.tolist() == [1.0, 1.0]


def test_the_schedule_scales_each_step() -> None:
    settings = Sgd(learning_rate=0.5, momentum=0.0, weight_decay=0.0, schedule=Poly(power=1.0))
    assert [learning_rate(settings, at, 4) for at in range(4)] == [0.5, 0.375, 0.25, 0.125]
    module = Weights(1.0)
    optimizer = build_optimizer(module, settings)
    assert step(module, optimizer, settings, 1.0, at=0) == [0.5]
    assert step(module, optimizer, settings, 1.0, at=2) == [0.25]


def test_gradient_norm_is_clipped() -> None:
    settings = Sgd(learning_rate=1.0, momentum=0.0, weight_decay=0.0, clip_gradient=1.0)
    module = Weights(0.0, 0.0)
    optimizer = build_optimizer(module, settings)
    assert step(module, optimizer, settings, 3.0, 4.0) == pytest.approx([-0.6, -0.8])
    assert step(module, optimizer, settings, 0.25, 0.5) == pytest.approx([-0.85, -1.3])


def test_momentum_is_carried_over_but_settings_are_not() -> None:
    first, second = (
        Sgd(learning_rate=rate, momentum=momentum, weight_decay=0.0) for rate, momentum in ((1, 0.9), (0.1, 0.5))
    )
    before, after = Weights(0.0), Weights(0.0)
    source, target = build_optimizer(before, first), build_optimizer(after, second)
    step(before, source, first, 2.0)
    carry_over_momentum(TrainedModule(before, source), TrainedModule(after, target))
    # momentum 0.5 * 2 + 1 = 2, with the new learning rate of 0.1
    assert step(after, target, second, 1.0) == pytest.approx([-0.2])


def learned(module: nn.Module, settings: Sgd | Adam) -> TrainedModule:
    """Return the module with an optimizer that has made one step with gradients of 1."""
    optimizer = build_optimizer(module, settings)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    apply_update(optimizer, settings, 1.0)
    return TrainedModule(module, optimizer)


@pytest.mark.parametrize(("settings", "momentum"), [(Sgd(weight_decay=0.0), "momentum_buffer"), (Adam(), "exp_avg")])
def test_momentum_is_matched_by_name_and_shape(settings: Sgd | Adam, momentum: str) -> None:
    """The second stage has its parameters in another order, one with another shape and one new."""
    before = learned(nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(3, 1)}), settings)
    module = nn.ModuleDict({"new": nn.Linear(2, 3), "b": nn.Linear(3, 1), "a": nn.Linear(2, 4)})
    after = TrainedModule(module, build_optimizer(module, settings))
    carry_over_momentum(before, after)
    carried = {name: after.optimizer.state[parameter].get(momentum) for name, parameter in module.named_parameters()}
    assert {name for name, values in carried.items() if values is not None and values.any()} == {"b.weight", "b.bias"}
    torch.testing.assert_close(
        carried["b.weight"], before.optimizer.state[before.module.get_parameter("b.weight")][momentum]
    )
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    apply_update(after.optimizer, settings, 1.0)
    assert all(parameter.isfinite().all() for parameter in module.parameters())


def test_no_state_is_carried_between_optimizer_types() -> None:
    before, module = learned(nn.Linear(2, 3), Sgd()), nn.Linear(2, 3)
    after = TrainedModule(module, build_optimizer(module, Adam()))
    carry_over_momentum(before, after)
    assert not after.optimizer.state_dict()["state"]


@pytest.mark.parametrize("settings", [Sgd(learning_rate=0.5, clip_gradient=2.0), Adam(learning_rate=0.5)])
def test_learning_rate_on_the_device_is_read_at_every_update(settings: Sgd | Adam) -> None:
    by_number, by_tensor = Weights(1.0, -2.0), Weights(1.0, -2.0)
    first, second = build_optimizer(by_number, settings), build_optimizer(by_tensor, settings)
    rate = learning_rate_on_device(second)
    assert rate.shape == () and rate.device == by_tensor.moved.device and rate.dtype == torch.float32
    for at, gradient in enumerate([(3.0, 1.0), (-1.0, 2.0), (0.5, 0.25)]):
        step(by_number, first, settings, *gradient, at=at)
        by_tensor.moved.grad = torch.tensor(gradient)
        rate.fill_(learning_rate(settings, at, 4))
        apply_update(second, settings, None)
        assert by_tensor.moved.tolist() == pytest.approx(by_number.moved.tolist(), rel=1e-6)
    assert all(group["lr"] is rate for group in second.param_groups)
    assert isinstance(settings, Sgd) or second.param_groups[0]["capturable"] is True


@pytest.mark.parametrize("betas", [(1.0, 0.9), (0.9, 1.5), (-0.1, 0.9)])
def test_betas_must_be_below_1(betas: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="betas"):
        Adam(betas=betas)


def test_missing_momentum_is_filled_with_zeros() -> None:
    """Biases before a norm have a gradient on a CPU, but none on a GPU."""
    settings, states = Sgd(learning_rate=0.5, momentum=0.5, weight_decay=0.0), []
    for has_bias_gradient in (False, True):
        module = nn.Linear(1, 1)
        optimizer = build_optimizer(module, settings)
        module.weight.grad = torch.ones(1, 1)
        module.bias.grad = torch.zeros(1) if has_bias_gradient else None
        apply_update(optimizer, settings, 0.5)
        states.append(optimizer.state_dict())
    results = []
    for state in states:
        module = nn.Linear(1, 1)
        nn.init.zeros_(module.weight)
        nn.init.zeros_(module.bias)
        optimizer = build_optimizer(module, settings)
        load_optimizer_state(optimizer, state)
        module.weight.grad, module.bias.grad = torch.ones(1, 1), torch.ones(1)
        apply_update(optimizer, settings, 0.5)
        results.append((module.weight.item(), module.bias.item()))
    assert results == [(-0.75, -0.5)] * 2
