"""Warnings at the end of training about classes that were not learned and losses that did not fall."""

from typing import Any

from graftseg.training.learning_check import learning_warnings


def log_of(*totals: float) -> list[dict[str, Any]]:
    return [{"stage": 0, "total": total, "global_step": step} for step, total in enumerate(totals, 1)]


FALLING = log_of(*[1.0 - 0.01 * step for step in range(50)])


def test_a_lost_class_is_named() -> None:
    assert learning_warnings({"a": 0.9, "b": 0.05}, FALLING) == []
    (warning,) = learning_warnings({"left": 0.9, "right": 0.049}, FALLING)
    assert "right" in warning and "4.9 %" in warning


def test_a_flat_loss() -> None:
    assert len(learning_warnings({}, log_of(*[1.0] * 20))) == 1
    assert learning_warnings({}, log_of(*[1.0] * 10, *[0.9] * 10)) == []
    assert learning_warnings({}, []) == learning_warnings({}, log_of(1.0)) == []


def test_other_stages_and_scores_are_ignored() -> None:
    later = [{"stage": 1, "total": 5.0, "global_step": 60}, {"stage": 0, "dice": 0.1, "global_step": 50}]
    assert learning_warnings({}, [*FALLING, *later]) == []
