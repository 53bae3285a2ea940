"""Work on a side stream gives the same results as sequential work."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from tiny import tiny_batch, tiny_method
from torch import Tensor

from graftseg.core.devices import Wait, side_stream
from graftseg.core.types import Progress
from graftseg.methods import bcp


def test_on_a_cpu_the_block_runs_normally() -> None:
    x = torch.arange(4.0)
    with side_stream(x) as wait:
        doubled = 2 * x
    wait()
    assert doubled.tolist() == [0, 2, 4, 6]


def test_an_error_in_the_block_is_not_lost() -> None:
    with pytest.raises(ValueError, match="no such label"), side_stream(torch.zeros(1)):
        raise ValueError("no such label")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
def test_on_a_gpu_results_are_complete_after_waiting() -> None:
    """A long chain of products on a side stream, many times over the same memory."""
    x = torch.eye(512, device="cuda") * 1.01
    for repetition in range(20):
        with side_stream(x) as wait:
            power = torch.linalg.matrix_power(x, 64)
        other = torch.linalg.matrix_power(x, 32)
        wait()
        difference = (power - other @ other).abs().max().item()
        assert difference < 1e-3, repetition


@pytest.mark.parametrize("dimensions", [2, 3])
def test_teacher_labels_are_computed_before_the_losses(dimensions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy-paste starts the labels, runs the student, waits for the labels, then computes the losses."""
    events: list[str] = []

    @contextmanager
    def recording_stream(images: Tensor) -> Iterator[Wait]:
        events.append("labels")
        yield lambda: events.append("waited")

    def no_loss(*arguments: object) -> Tensor:
        events.append("loss")
        return torch.zeros(())

    method = tiny_method("bcp", dimensions)
    monkeypatch.setattr(bcp, "side_stream", recording_stream)
    monkeypatch.setattr(method, "mixed_loss", no_loss)
    method.student.register_forward_hook(lambda *arguments: events.append("student"))
    next(method.objectives(tiny_batch(dimensions), Progress(torch.tensor(0), 10)))
    assert events == ["labels", "student", "student", "waited", "loss", "loss"]
