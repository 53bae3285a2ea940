"""CoraNet: values by hand, certainty as agreement, and constant pseudo-labels between refreshes."""

import math
from typing import Any

import pytest
import torch
from tiny import tiny_batch, tiny_method
from torch import Tensor, nn

from graftseg.core.types import Batch, Labeled, Progress
from graftseg.inference.model import build_method
from graftseg.methods.base import Method
from graftseg.methods.coranet import CoraNet, CoraNetConfig
from graftseg.methods.coranet_pretrain import CoraNetPretrain, CoraNetPretrainConfig
from graftseg.networks import Networks, NetworkSettings, parameter_count
from graftseg.ops.optimizers import Adam
from graftseg.recipes.recipe import load_recipe

NETWORKS = Networks(NetworkSettings(name="unet-2d", width=2, levels=2), 1, 2)


def now(step: int) -> Progress:
    return Progress(torch.tensor(step), 10)


def with_varied_student(method: Method, seed: int = 0) -> CoraNet:
    """Return the method with a student whose predictions vary between voxels."""
    assert isinstance(method, CoraNet)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in method.student.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    return method


class Fixed(nn.Module):
    """Three branches with the same foreground logits for every image; the background logit is 0."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, images: Tensor, all_outputs: bool = False) -> Any:
        zeros = torch.zeros_like(images)
        outputs = [torch.cat([zeros, zeros + logit], 1) for logit in self.logits]
        return outputs if all_outputs else outputs[0]


def fixed(student: Fixed, labeler: Fixed, teacher: Fixed, **settings: Any) -> CoraNet:
    method = CoraNet(CoraNetConfig.model_validate(settings), NETWORKS)
    method.student, method.labeler, method.teacher = student, labeler, teacher
    return method


def background_batch() -> Batch:
    images = torch.zeros(2, 1, 4, 4)
    return Batch(Labeled(images, torch.zeros(2, 4, 4, dtype=torch.long)), images)


# Probabilities of ½ where all labels are background: CE is ln 2 for any weights; the Dice is 2/3 and 0.
UNDECIDED = (3 * math.log(2) + 2 / 3) / 4


def test_pretraining_by_hand() -> None:
    method = CoraNetPretrain(CoraNetPretrainConfig(), NETWORKS)
    method.student = Fixed(0.0, 0.0, 0.0)
    (objective,) = method.objectives(background_batch(), now(0))
    assert objective.total.item() == pytest.approx(UNDECIDED, abs=1e-5)


def test_certain_everywhere_by_hand() -> None:
    """Both branches predict background: weights 1 and 5 are divided by the number of voxels; no voxel is uncertain."""
    method = fixed(Fixed(0.0, 0.0, 0.0), Fixed(-1.0, -1.0, -2.0), Fixed(9.0, 9.0, 9.0))
    (objective,) = method.objectives(background_batch(), now(1))
    certain = (math.log(2) * (1 + 1 + 5) + 2 / 3) / 4
    assert objective.terms["L_certain"].item() == pytest.approx(certain, abs=1e-5)
    assert objective.terms["L_uncertain"].item() == 0
    assert objective.total.item() == pytest.approx(UNDECIDED + 0.5 * certain, abs=1e-5)


def test_uncertain_everywhere_by_hand() -> None:
    """The branches disagree: only the teacher counts; (¼, ¾) and (½, ½) have a squared difference of 1/16 per class."""
    method = fixed(Fixed(0.0, 0.0, 0.0), Fixed(-1.0, -1.0, 1.0), Fixed(*[math.log(3)] * 3), refresh_every=4)
    (objective,) = method.objectives(background_batch(), now(3))
    # the Dice loss of an empty mask is 1 - ε/ε = 0
    assert objective.terms["L_certain"].item() == pytest.approx(0, abs=1e-5)
    assert objective.terms["L_uncertain"].item() == pytest.approx(2 / 16, abs=1e-5)
    w = 0.1 * math.exp(-5)
    assert objective.total.item() == pytest.approx(UNDECIDED + 0.5 * w * 2 / 16, abs=1e-6)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_voxels_are_certain_where_two_branches_agree(dimensions: int) -> None:
    method, batch = with_varied_student(tiny_method("coranet", dimensions)), tiny_batch(dimensions)
    (objective,) = method.objectives(batch, now(0))
    main, first, second = (out.argmax(1) for out in method.labeler(batch.unlabeled, all_outputs=True))
    assert torch.equal(objective.shows["M"], first == second)
    assert torch.equal(objective.shows["Y_pseudo"], main)
    assert torch.equal(method.preview_labels(batch.unlabeled), main)
    assert 0 < objective.shows["M"].float().mean() < 1


def test_agreeing_branches_leave_no_uncertain_voxel() -> None:
    method, batch = tiny_method("coranet", 2), tiny_batch(2)
    student: Any = method.student
    student.others[1].load_state_dict(student.others[0].state_dict())
    (objective,) = method.objectives(batch, now(0))
    assert objective.shows["M"].all() and objective.terms["L_uncertain"].item() == 0


def test_pseudo_labels_are_constant_between_refreshes() -> None:
    method, batch, seen = tiny_method("coranet", 2, refresh_every=3), tiny_batch(2), []
    for step in range(5):
        (objective,) = with_varied_student(method, seed=step).objectives(batch, now(step))
        seen.append(objective.shows["Y_pseudo"])
        if step % 3 == 0 and isinstance(method, CoraNet):
            own, copied = method.student.state_dict(), method.labeler.state_dict()
            exact = [name for name in own if not name.endswith(("mean", "var", "tracked"))]
            assert all(torch.equal(own[name], copied[name]) for name in exact)
    assert torch.equal(seen[0], seen[1]) and torch.equal(seen[1], seen[2]) and torch.equal(seen[3], seen[4])
    assert not torch.equal(seen[2], seen[3])


def test_labeler_has_no_dropout_but_batch_statistics() -> None:
    method = tiny_method("coranet", 2)
    assert isinstance(method, CoraNet)
    norms = [part for part in method.labeler.modules() if isinstance(part, nn.BatchNorm2d)]
    assert norms
    for mode in (True, False):
        method.train(mode)
        assert method.student.training == method.teacher.training == mode
        assert [part for part in method.labeler.modules() if part.training] == (norms if mode else [])


def test_self_training_starts_from_pretrained_branches() -> None:
    before, method = tiny_method("coranet-pretrain", 3, seed=4), tiny_method("coranet", 3)
    assert isinstance(method, CoraNet)
    method.start_from(before)
    for network in (method.student, method.teacher, method.labeler):
        assert all(torch.equal(value, before.student.state_dict()[key]) for key, value in network.state_dict().items())


def test_coranet_teacher_is_ema_of_student() -> None:
    method = tiny_method("coranet", 2, ema_decay=0.75)
    assert isinstance(method, CoraNet)
    with torch.no_grad():
        for parameter in method.student.parameters():
            parameter.add_(4.0)
    before = [parameter.clone() for parameter in method.teacher.parameters()]
    method.after_step(now(0))
    for old, new in zip(before, method.teacher.parameters(), strict=True):
        assert torch.allclose(new, old + 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [("pancreas-12/coranet", 2, 9_457_190), ("la-4/coranet", 2, 9_457_190), ("acdc-3/coranet", 4, None)],
)
def test_recipes_have_the_published_norm_optimizer_and_no_dropout(
    name: str, classes: int, parameters: int | None
) -> None:
    recipe, meta = load_recipe(name), torch.device("meta")
    for stage in recipe.stages:
        assert stage.optimizer == Adam(learning_rate=1e-3, betas=(0.5, 0.999))
        with meta:
            student = build_method(recipe, stage, 1, classes, meta).student
        assert parameters in (None, parameter_count(student))
        kinds = [part for part in student.modules() if isinstance(part, nn.modules.dropout._DropoutNd)]
        assert all(part.p == 0 for part in kinds)
        norms = {type(part).__name__ for part in student.modules() if "Norm" in type(part).__name__}
        assert norms and not any("Batch" in norm for norm in norms), norms
    assert [stage.carry_optimizer for stage in recipe.stages] == [False, True]
