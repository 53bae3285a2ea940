"""The moving average of a teacher: exact numbers, scopes and warm-up."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from graftseg.networks.ema import Scope, ema_update, make_teacher, warmup_decay

seeds = st.integers(0, 2**16)
decays = st.floats(0, 1, width=32)


def network(seed: int = 0) -> nn.Sequential:
    """Return a small random network with parameters, float buffers and an integer buffer."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_()
        else:
            buffer.random_(0, 30000)
    return module


def filled(value: float, batches: int) -> nn.Sequential:
    module = network()
    for tensor in module.state_dict().values():
        tensor.fill_(value if tensor.is_floating_point() else batches)
    return module


def state(module: nn.Module) -> list[Tensor]:
    return list(module.state_dict().values())


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(map(torch.equal, first, second))


def parameters(module: nn.Module) -> list[Tensor]:
    return list(module.parameters())


@pytest.mark.parametrize("decay", [0.75, torch.tensor(0.75)])
def test_exact_numbers(decay: float | Tensor) -> None:
    teacher, student = make_teacher(filled(4.0, 10)), filled(8.0, 13)
    ema_update(teacher, student, decay, "state")
    for tensor in teacher.state_dict().values():
        # 0.75 * 10 + 0.25 * 13 = 10.75 is stored as 10
        expected = 5.0 if tensor.is_floating_point() else 10
        assert (tensor == expected).all()


def test_scope_parameters_leaves_buffers_unchanged() -> None:
    teacher, student = make_teacher(filled(4.0, 10)), filled(8.0, 20)
    ema_update(teacher, student, 0.5, "parameters")
    assert all((parameter == 6.0).all() for parameter in teacher.parameters())
    assert [buffer.tolist() for buffer in teacher.buffers()] == [[4.0] * 3, [4.0] * 3, 10]


@settings(deadline=None, max_examples=20)
@given(seeds, st.sampled_from(["parameters", "state"]), st.booleans())
def test_decay_0_copies_and_decay_1_changes_nothing(seed: int, scope: Scope, on_device: bool) -> None:
    teacher, student = make_teacher(network(seed)), network(seed + 1)
    before = copy.deepcopy(state(teacher))
    ema_update(teacher, student, torch.tensor(1.0) if on_device else 1.0, scope)
    assert equal(state(teacher), before)
    ema_update(teacher, student, torch.tensor(0.0) if on_device else 0.0, scope)
    assert equal(parameters(teacher), parameters(student))
    assert equal(state(teacher), state(student)) == (scope == "state")


@settings(deadline=None, max_examples=20)
@given(seeds, decays, st.booleans())
def test_ema_is_bit_identical_to_a_plain_loop(seed: int, number: float, on_device: bool) -> None:
    decay = torch.tensor(number) if on_device else number
    teacher, student = make_teacher(network(seed)), network(seed + 1)
    expected = copy.deepcopy(state(teacher))
    for target, source in zip(expected, state(student), strict=True):
        target.copy_(decay * target + (1 - decay) * source)
    ema_update(teacher, student, decay, "state")
    assert equal(state(teacher), expected)


def test_student_is_unchanged() -> None:
    teacher, student = make_teacher(network(1)), network(2)
    before = copy.deepcopy(state(student))
    ema_update(teacher, student, 0.5, "state")
    assert equal(state(student), before)


def test_teacher_is_an_equal_copy_without_gradient() -> None:
    student = network()
    teacher = make_teacher(student)
    assert type(teacher) is nn.Sequential
    assert equal(state(teacher), state(student))
    assert teacher.training
    images = torch.randn(4, 2)
    assert not teacher(images).requires_grad
    (student(images) - teacher(images)).square().sum().backward()
    ema_update(teacher, student, 0.5, "state")
    assert all(p.grad is None and not p.requires_grad for p in teacher.parameters())
    assert all(p.requires_grad for p in student.parameters())


def test_different_networks_are_rejected() -> None:
    with pytest.raises(ValueError, match="longer"):
        ema_update(nn.Sequential(nn.Linear(2, 2)), network(), 0.5, "parameters")


def test_warm_up() -> None:
    ramp = [warmup_decay(torch.tensor(step)).item() for step in (0, 1, 3, 99, 100, 10**6)]
    assert ramp == pytest.approx([0.0, 0.5, 0.75, 0.99, 0.99, 0.99], abs=1e-7)
    assert warmup_decay(torch.tensor(9), decay=0.5).item() == 0.5
    assert warmup_decay(torch.tensor(3)).dtype == torch.float32


def test_teacher_is_the_mean_of_all_students_during_warm_up() -> None:
    teacher = make_teacher(filled(100.0, 0))
    for step, value in enumerate([1.0, 2.0, 6.0, 7.0]):
        ema_update(teacher, filled(value, 0), warmup_decay(torch.tensor(step)), "parameters")
    torch.testing.assert_close(teacher[0].weight, torch.full((3, 2), 4.0))
