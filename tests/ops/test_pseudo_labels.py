"""Pseudo-labels: ties, largest components, and the mode of the teacher."""

import pytest
import torch
from torch import Tensor, nn

from graftseg.ops.pseudo_labels import Decision, confidence, decide, pseudo_label


class Teacher(nn.Module):
    """A network that returns its parameter as logits and records its calls."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)
        self.modes: list[bool] = []
        self.gradients: list[bool] = []

    def forward(self, images: Tensor) -> Tensor:
        self.modes.append(self.training)
        self.gradients.append(torch.is_grad_enabled())
        return self.logits.to(images.dtype)


def two_classes(foreground: list[list[float]]) -> Tensor:
    p = torch.tensor(foreground)
    return torch.stack([1 - p, p])[None]


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(1, 1, 1, 6, dtype=dtype)


def logits_of(labels: list[list[int]], classes: int) -> Tensor:
    return 3.0 * nn.functional.one_hot(torch.tensor([labels]), classes).movedim(-1, 1).float()


def test_threshold_assigns_ties_to_the_foreground() -> None:
    labels = decide(two_classes([[0.5, 0.4999, 0.5001, 0.0, 1.0]]), "threshold")
    assert labels.dtype == torch.int64
    assert labels.tolist() == [[[1, 0, 1, 0, 1]]]


def test_argmax_assigns_ties_to_the_lower_class() -> None:
    p = torch.tensor([[0.5, 0.2, 0.3, 0.4], [0.5, 0.5, 0.3, 0.2], [0.0, 0.3, 0.4, 0.4]])[None]
    labels = decide(p, "argmax")
    assert labels.dtype == torch.int64
    assert labels.tolist() == [[0, 1, 2, 0]]


@pytest.mark.parametrize("classes", [1, 3, 4])
def test_threshold_needs_two_classes(classes: int) -> None:
    with pytest.raises(ValueError, match=f"two classes, not {classes}"):
        decide(torch.full((1, classes, 2), 1 / classes), "threshold")


def test_equal_logits_are_a_tie() -> None:
    teacher = Teacher(torch.zeros(1, 2, 1, 6))
    assert pseudo_label(teacher, images(), decision="threshold").tolist() == [[[1] * 6]]
    assert pseudo_label(teacher, images(), decision="argmax").tolist() == [[[0] * 6]]


@pytest.mark.parametrize("decision", ["threshold", "argmax"])
def test_largest_component_is_kept(decision: Decision) -> None:
    teacher = Teacher(logits_of([[1, 0, 1, 1, 0, 1]], 2))
    assert pseudo_label(teacher, images(), decision=decision).tolist() == [[[0, 0, 1, 1, 0, 0]]]
    assert pseudo_label(teacher, images(), decision=decision, clean=False).tolist() == [[[1, 0, 1, 1, 0, 1]]]


def test_every_class_keeps_its_largest_component() -> None:
    teacher = Teacher(logits_of([[1, 2, 2, 0, 1, 1], [0, 0, 0, 0, 0, 0], [2, 0, 3, 0, 0, 3]], 4))
    expected = [[[0, 2, 2, 0, 1, 1], [0, 0, 0, 0, 0, 0], [0, 0, 3, 0, 0, 0]]]
    assert pseudo_label(teacher, images()).tolist() == expected


def test_only_listed_classes_are_cleaned() -> None:
    teacher = Teacher(logits_of([[1, 0, 1, 1, 0, 2], [0, 0, 0, 0, 0, 0], [2, 2, 0, 0, 0, 1]], 3))
    expected = [[[0, 0, 1, 1, 0, 2], [0, 0, 0, 0, 0, 0], [2, 2, 0, 0, 0, 0]]]
    assert pseudo_label(teacher, images(), clean=(1,)).tolist() == expected
    assert pseudo_label(teacher, images(), clean=()).tolist() == pseudo_label(teacher, images(), clean=False).tolist()


def test_connectivity_is_passed_on() -> None:
    teacher = Teacher(logits_of([[1, 1, 0], [0, 0, 1]], 2))
    assert pseudo_label(teacher, images()).tolist() == [[[1, 1, 0], [0, 0, 1]]]
    assert pseudo_label(teacher, images(), connectivity=1).tolist() == [[[1, 1, 0], [0, 0, 0]]]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_teacher_runs_once_without_gradient_in_its_current_mode(training: bool, clean: bool) -> None:
    teacher = Teacher(logits_of([[0, 1, 1, 0, 0, 1]], 2)).train(training)
    labels = pseudo_label(teacher, images(), clean=clean)
    assert teacher.modes == [training]
    assert teacher.training is training
    assert teacher.gradients == [False]
    assert torch.is_grad_enabled()
    assert labels.dtype == torch.int64
    assert not labels.requires_grad
    assert teacher.logits.grad is None


def test_probabilities_are_compared_in_float32() -> None:
    logits = torch.tensor([0.0, -0.001]).view(1, 2, 1, 1).expand(1, 2, 1, 6)  # 0.49975, which bfloat16 rounds to 0.5
    teacher = Teacher(logits.clone())
    labels = pseudo_label(teacher, images(torch.bfloat16), decision="threshold", clean=False)
    assert labels.tolist() == [[[0] * 6]]


def test_confidence_is_1_for_a_certain_label_and_0_at_chance_or_below() -> None:
    # one row for each of three classes, one column for each of four voxels
    probabilities = torch.tensor([[[1.0, 0.25, 0.0, 0.4], [0.0, 0.25, 0.1, 0.3], [0.0, 0.5, 0.9, 0.3]]])
    labels = torch.tensor([[0, 2, 1, 0]])
    values = confidence(probabilities, labels)
    assert values.flatten().tolist() == pytest.approx([1.0, 0.25, 0.0, 0.1])
