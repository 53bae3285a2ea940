"""Values of graft by hand, the rising weight of pseudo-labels, and the teacher without dropout."""

import math
from typing import Literal

import pytest
import torch
from test_bcp import NETWORKS, background_batch
from tiny import tiny_batch, tiny_method
from torch import nn

from graftseg.core.types import Progress
from graftseg.methods.graft import Graft, GraftConfig

START = Progress(torch.tensor(0), 10)
# Probabilities of ½ where all labels are background: the Dice over the batch is 2 (n / 2) / (n / 4 + n) = 0.8 for the
# background and 0 for the foreground, so the Dice loss is 0.6. The cross-entropy is ln 2. L_seg is their mean.
L_SEG = (0.6 + math.log(2)) / 2


def test_undecided_pseudo_labels_have_no_weight() -> None:
    (objective,) = Graft(GraftConfig(rise=0), NETWORKS).objectives(background_batch(), START)
    for name in ("L_labeled", "L_in", "L_out"):
        assert objective.terms[name].item() == pytest.approx(L_SEG, abs=1e-5)


def test_pseudo_labels_count_fully_without_confidence() -> None:
    config = GraftConfig(rise=0, confidence=False, alpha=0.5, labeled_weight=2.0)
    (objective,) = Graft(config, NETWORKS).objectives(background_batch(), Progress(torch.tensor(1), 10))
    assert objective.terms["L_in"].item() == pytest.approx(1.5 * L_SEG, abs=1e-5)
    assert objective.total.item() == pytest.approx((2 + 1.5 + 1.5) * L_SEG, abs=1e-5)


def test_weight_of_pseudo_labels_rises() -> None:
    config = GraftConfig(direction="none", rise=0.4, confidence=False, alpha=2.0)
    method = Graft(config, NETWORKS)
    weights = [
        next(method.objectives(background_batch(), Progress(torch.tensor(step), 10))).weights["L_unlabeled"]
        for step in (0, 2, 4, 9)
    ]
    assert torch.as_tensor(weights).tolist() == pytest.approx([0.2, 1.1, 2.0, 2.0])


def test_only_the_student_has_dropout() -> None:
    method = tiny_method("graft", 2)
    student, teacher = (
        [part.p for part in network.modules() if isinstance(part, nn.Dropout)]
        for network in (method.student, method.get_submodule("teacher"))
    )
    assert any(student) and len(student) == len(teacher) and not any(teacher)


@pytest.mark.parametrize("average", [False, True])
def test_the_average_replaces_the_student_at_the_end_of_the_stage(average: bool) -> None:
    method = tiny_method("graft", 3, average=average)
    before, shift = method.student.state_dict(), 0.5
    with torch.no_grad():
        for weight in method.student.parameters():
            weight.add_(shift)
    own = {name: value.clone() for name, value in before.items()}
    method.finish()
    expected = method.get_submodule("teacher").state_dict() if average else own
    for name, value in method.student.state_dict().items():
        assert torch.equal(value, expected[name])


@pytest.mark.parametrize("direction", ["both", "none"])
def test_joint_and_separate_batches_differ_only_in_batch_statistics(direction: str) -> None:
    """In eval mode, which uses running statistics, the losses are equal."""
    totals = []
    for joint in (False, True):
        method = tiny_method("graft", 2, direction=direction, joint=joint).eval()
        torch.manual_seed(3)
        totals.append(next(method.objectives(tiny_batch(2), START)).total)
    torch.testing.assert_close(*totals)


@pytest.mark.parametrize("direction", ["none", "both"])
def test_pseudo_labels_of_ignored_classes_have_no_weight(direction: Literal["none", "both"]) -> None:
    """The teacher finds class 1 everywhere. Ignored, it leaves the loss of the labeled images and regions."""
    found, ignored = (GraftConfig(rise=0, direction=direction, ignored_classes=classes) for classes in ((), (1,)))
    totals = []
    for config in (found, ignored):
        method = Graft(config, NETWORKS)
        with torch.no_grad():
            next(method.get_submodule("teacher").parameters()).copy_(torch.tensor([-9.0, 9.0]))
        (objective,) = method.objectives(background_batch(), START)
        totals.append(objective.total.item())
    regions = 3 if direction == "both" else 1
    assert totals[1] == pytest.approx(regions * L_SEG, abs=1e-5)
    assert totals[0] > totals[1] + 0.05
