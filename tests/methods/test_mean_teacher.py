"""Values of the mean teacher by hand, and properties of the teacher."""

import math

import pytest
import torch
from tiny import tiny_method

from graftseg.methods.mean_teacher import MeanTeacher, MeanTeacherConfig, mean_squared_difference
from method_fakes import Echo, at_step, black_batch, fakes, set_bias

NOW = at_step(0)


def test_mean_teacher_by_hand() -> None:
    method = MeanTeacher(MeanTeacherConfig(), fakes())
    set_bias(method.teacher, 0.75, 0.25)
    (objective,) = method.objectives(black_batch(), at_step(6000))
    # the student predicts ½: (0.5 - 0.75)² in both classes
    assert objective.terms["consistency"].item() == pytest.approx(0.0625, abs=1e-6)
    # squared sums: the Dice of the background is (2 n/2) / (n/4 + n) = 0.8, that of the foreground 0
    supervised = (math.log(2) + 1 - 0.8 / 2) / 2
    assert objective.total.item() == pytest.approx(supervised + 0.1 * 0.0625, abs=1e-5)


@pytest.mark.parametrize(("step", "ramp"), [(0, math.exp(-5)), (149, math.exp(-5)), (3000, math.exp(-1.25)), (6000, 1)])
def test_weight_follows_the_ramp(step: int, ramp: float) -> None:
    (objective,) = MeanTeacher(MeanTeacherConfig(), fakes()).objectives(black_batch(), at_step(step))
    assert float(objective.weights["consistency"]) == pytest.approx(0.1 * ramp, rel=1e-5)


def test_consistency_is_zero_for_equal_predictions() -> None:
    logits = torch.randn(2, 3, 4, 4)
    assert mean_squared_difference(logits, logits + 7).item() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_only_the_teacher_gets_noise(noise: float) -> None:
    method, batch = MeanTeacher(MeanTeacherConfig(noise=noise), fakes(Echo)), black_batch()
    (objective,) = method.objectives(batch, NOW)
    assert torch.equal(objective.shows["X_unlabeled"], batch.unlabeled) is (noise == 0)
    assert (objective.terms["consistency"] == 0).item() is (noise == 0)


def test_first_teacher_is_a_copy_then_a_mean() -> None:
    method = tiny_method("mean-teacher", 2)
    assert isinstance(method, MeanTeacher)
    weights = []
    for step in range(3):
        with torch.no_grad():
            for parameter in method.student.parameters():
                parameter.add_(torch.randn_like(parameter))
        weights.append(next(method.student.parameters()).clone())
        method.after_step(at_step(step))
        expected = torch.stack(weights).mean(0)
        assert torch.allclose(next(method.teacher.parameters()), expected, atol=1e-6)
