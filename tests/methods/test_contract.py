"""The contract of every method, in 2-D and 3-D."""

import io
from typing import Any

import pytest
import torch
from tiny import SIDE, tiny_method
from tiny import tiny_batch as any_batch
from torch import Tensor

from graftseg.core.types import Batch, Progress
from graftseg.methods import METHODS, Method

pytestmark = pytest.mark.parametrize("name", METHODS)
in_2d_and_3d = pytest.mark.parametrize("dimensions", [2, 3])
in_2d_and_slowly_in_3d = pytest.mark.parametrize("dimensions", [2, pytest.param(3, marks=pytest.mark.slow)])


SIZES = {2: 4, 3: 2}
"""Number of labeled images, and of unlabeled images, of a batch."""


def tiny_batch(dimensions: int, seed: int = 0) -> Batch:
    """Return a batch large enough for four halvings by a discriminator."""
    return any_batch(dimensions, seed, size=SIZES[dimensions], side=SIDE)


def progress(step: int = 0) -> Progress:
    return Progress(torch.tensor(step), 10)


def optimizers_of(method: Method) -> dict[str, torch.optim.Optimizer]:
    return {name: torch.optim.SGD(method.get_submodule(name).parameters(), lr=0.1) for name in method.trained_modules}


def take_step(method: Method, optimizers: dict[str, torch.optim.Optimizer], batch: Batch, step: int) -> list[Tensor]:
    totals = []
    for objective in method.objectives(batch, progress(step)):
        optimizer = optimizers[objective.updates]
        optimizer.zero_grad()
        objective.total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        totals.append(objective.total.detach())
    method.after_step(progress(step))
    return totals


def student_gradient(name: str, dimensions: int, batch: Batch) -> Tensor:
    method = tiny_method(name, dimensions)
    torch.manual_seed(1)
    objective = next(iter(method.objectives(batch, progress(9))))
    objective.total.backward()  # type: ignore[no-untyped-call]
    return torch.cat(
        [parameter.grad.ravel() for parameter in method.student.parameters() if parameter.grad is not None]
    )


@in_2d_and_3d
def test_objectives_are_finite_and_update_their_module(name: str, dimensions: int) -> None:
    """Each objective updates one module, shows images with valid names and shapes, and leaves other modules alone."""
    method, batch = tiny_method(name, dimensions), tiny_batch(dimensions)
    optimizers, moved = optimizers_of(method), set()
    for objective in method.objectives(batch, progress()):
        assert objective.terms, "an objective has at least one term"
        assert all(torch.isfinite(term) and term.dim() == 0 for term in objective.terms.values())
        assert objective.shows and all(key[0] in "XYM" for key in objective.shows)
        for picture in objective.shows.values():
            assert tuple(picture.shape[-dimensions:]) == (SIDE,) * dimensions
        before = {key: value.clone() for key, value in method.named_parameters()}
        optimizers[objective.updates].zero_grad()
        objective.total.backward()  # type: ignore[no-untyped-call]
        optimizers[objective.updates].step()
        changed = {key for key, value in method.named_parameters() if not torch.equal(value, before[key])}
        assert changed and all(key.startswith(f"{objective.updates}.") for key in changed)
        moved.add(objective.updates)
    assert moved == set(method.trained_modules)
    untrained = [p for key, p in method.named_parameters() if key.split(".")[0] not in method.trained_modules]
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in untrained)


@in_2d_and_slowly_in_3d
def test_unlabeled_images_change_the_student_gradient(name: str, dimensions: int) -> None:
    batch, other = tiny_batch(dimensions), tiny_batch(dimensions, seed=5)
    changed = Batch(batch.labeled, other.unlabeled)
    same = torch.equal(student_gradient(name, dimensions, batch), student_gradient(name, dimensions, changed))
    assert same is not METHODS[name].uses_unlabeled


@in_2d_and_slowly_in_3d
def test_resume_is_bit_identical(name: str, dimensions: int) -> None:
    method = tiny_method(name, dimensions)
    take_step(method, optimizers_of(method), tiny_batch(dimensions), 0)
    stream = io.BytesIO()
    torch.save(method.state_dict(), stream)
    stream.seek(0)
    resumed = tiny_method(name, dimensions, seed=8)
    resumed.load_state_dict(torch.load(stream, weights_only=True))
    states: list[dict[str, Any]] = []
    for copy in (method, resumed):
        torch.manual_seed(2)
        take_step(copy, optimizers_of(copy), tiny_batch(dimensions, seed=1), 1)
        states.append(copy.state_dict())
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())


@in_2d_and_3d
def test_segment_depends_only_on_the_student(name: str, dimensions: int) -> None:
    method, batch = tiny_method(name, dimensions).eval(), tiny_batch(dimensions)
    probabilities = method.segment(batch.unlabeled)
    assert probabilities.shape == (SIZES[dimensions], 3, *[SIDE] * dimensions)
    assert torch.allclose(probabilities.sum(1), torch.ones(()), atol=1e-6)
    shipped = tiny_method(name, dimensions, seed=4).eval()
    shipped.student.load_state_dict(method.student.state_dict())
    assert torch.equal(shipped.segment(batch.unlabeled), probabilities)


@in_2d_and_slowly_in_3d
def test_same_seed_gives_same_loss(name: str, dimensions: int) -> None:
    losses = []
    for _ in range(2):
        method = tiny_method(name, dimensions)
        torch.manual_seed(3)
        losses.append(take_step(method, optimizers_of(method), tiny_batch(dimensions), 0))
    assert all(torch.equal(first, second) for first, second in zip(*losses, strict=True))


@in_2d_and_3d
def test_stage_starts_from_previous_student(name: str, dimensions: int) -> None:
    before, method = tiny_method("supervised", dimensions, seed=6), tiny_method(name, dimensions)
    method.start_from(before)
    for network in [method.student, *([method.teacher] if hasattr(method, "teacher") else [])]:
        assert isinstance(network, torch.nn.Module)
        own = network.state_dict()
        shared = {k: v for k, v in before.student.state_dict().items() if k in own and own[k].shape == v.shape}
        assert any(key.startswith("encoder.") for key in shared)
        assert all(torch.equal(own[key], value) for key, value in shared.items())
