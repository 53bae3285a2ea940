"""Values of SASSNet by hand, and separation of the two updates."""

import math

import pytest
import torch
from dual_task_fakes import DISTANCES, MEAN_S_SQUARED, SIDE, half_foreground, set_constant_heads
from tiny import tiny_batch, tiny_method, tiny_networks
from torch import nn

from graftseg.core.types import Progress
from graftseg.methods.sassnet import SassNet, SassNetConfig
from graftseg.ops.optimizers import Adam, Sgd, Step, learning_rate
from graftseg.recipes.recipe import load_recipe

NOW = Progress(torch.tensor(0), 10)


def test_by_hand() -> None:
    """Probabilities of ½: Dice 1 - 2 (n/4) / (n/4 + n/2), all distances 0, and an undecided discriminator."""
    method = SassNet(SassNetConfig(dice="foreground", adversarial_weight=0.015), tiny_networks(2, 2))
    set_constant_heads(method)
    for parameter in method.discriminator.head.parameters():
        nn.init.zeros_(parameter)
    student, critic = method.objectives(half_foreground(), NOW)
    assert student.terms["dice"].item() == pytest.approx(1 / 3, abs=1e-5)
    assert student.terms["distance"].item() == pytest.approx(sum(d * d for d in DISTANCES) / SIDE)
    assert student.terms["distance"].item() == pytest.approx(MEAN_S_SQUARED)
    assert student.terms["adversarial"].item() == pytest.approx(math.log(2))
    total = 1 / 3 + 0.3 * MEAN_S_SQUARED + 0.015 * math.exp(-5) * math.log(2)
    assert student.total.item() == pytest.approx(total, abs=1e-5)
    assert critic.total.item() == pytest.approx(math.log(2))


def test_discriminator_targets_by_hand() -> None:
    """With constant logits (0, 1), "labeled", the discriminator is right for half of the batch."""
    method = SassNet(SassNetConfig(), tiny_networks(2, 2))
    nn.init.zeros_(method.discriminator.head.weight)
    with torch.no_grad():
        method.discriminator.head.bias.copy_(torch.tensor([0.0, 1.0]))
    student, critic = method.objectives(half_foreground(), NOW)
    assert student.terms["adversarial"].item() == pytest.approx(math.log(1 + math.exp(-1)))
    assert critic.total.item() == pytest.approx((math.log(1 + math.exp(-1)) + math.log(1 + math.e)) / 2)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_sassnet_updates_do_not_leak(dimensions: int) -> None:
    """The discriminator's update keeps the student's state; the student's leaves no discriminator gradient."""
    method = tiny_method("sassnet", dimensions)
    assert isinstance(method, SassNet)
    objectives = method.objectives(tiny_batch(dimensions, side=SIDE), NOW)
    next(objectives).total.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in method.discriminator.parameters())
    method.student.zero_grad()
    before = {key: value.clone() for key, value in method.student.state_dict().items()}
    critic = torch.optim.Adam(method.discriminator.parameters(), 0.1)
    next(objectives).total.backward()  # type: ignore[no-untyped-call]
    critic.step()
    assert all(parameter.grad is None for parameter in method.student.parameters())
    assert all(torch.equal(value, before[key]) for key, value in method.student.state_dict().items())
    assert all(parameter.grad is not None for parameter in method.discriminator.parameters())


def test_each_network_is_in_eval_mode_while_the_other_learns() -> None:
    method, seen = tiny_method("sassnet", 2), list[tuple[str, bool]]()
    for name in ("student", "discriminator"):
        part = method.get_submodule(name)
        part.register_forward_hook(lambda module, *_, name=name: seen.append((name, module.training)))
    for _ in method.objectives(tiny_batch(2, side=SIDE), NOW):
        assert all(module.training for module in method.modules())
        assert all(parameter.requires_grad for parameter in method.parameters())
    assert seen == [("student", True), ("discriminator", False), ("student", False), ("discriminator", True)]


def test_discriminator_gets_updated_student() -> None:
    method, shown = tiny_method("sassnet", 2), []
    for change in (0.0, 1.0):
        objectives = method.objectives(tiny_batch(2, side=SIDE), NOW)
        next(objectives)
        with torch.no_grad():
            head = method.student.get_parameter("distance_head.bias")
            head.add_(change)
        shown.append(next(objectives).shows["X_distance"])
    assert (shown[1] > shown[0]).all()


def test_weight_ramps_up_over_6000_steps() -> None:
    method = tiny_method("sassnet", 2, adversarial_weight=0.015)
    for step, weight in ((0, 0.015 * math.exp(-5)), (3000, 0.015 * math.exp(-5 / 4)), (6000, 0.015), (9000, 0.015)):
        objective = next(method.objectives(tiny_batch(2, side=SIDE), Progress(torch.tensor(step), 15000)))
        assert float(objective.weights["adversarial"]) == pytest.approx(weight)


def test_recipes_have_the_published_settings() -> None:
    published = {
        "la-4/sassnet": (15000, 0.015, 40, "foreground"),
        "la-8/sassnet": (15000, 0.015, 40, "foreground"),
        "acdc-3/sassnet": (30000, 0.015, 200, "classes"),
        "acdc-7/sassnet": (30000, 0.015, 200, "classes"),
        "pancreas-12/sassnet": (6000, 0.01, 40, "foreground"),
    }
    actual = {}
    for name in published:
        recipe = load_recipe(name)
        (stage,) = recipe.stages
        settings = dict(stage.settings)
        actual[name] = (stage.steps, *(settings.pop(key) for key in ("adversarial_weight", "ramp", "dice")))
        assert settings == {"distance_weight": 0.3, "absent": 0.0}, name
        assert stage.optimizer_of("discriminator") == Adam(learning_rate=1e-4, betas=(0.9, 0.99)), name
        assert stage.optimizer_of("student").name == "sgd", name
        assert not recipe.inference.largest_component, name
    assert actual == published


@pytest.mark.parametrize("name", ["acdc-3/sassnet", "acdc-7/sassnet"])
def test_schedule_and_ramp_on_slices_are_the_published_ones_in_proportion(name: str) -> None:
    """The public code has 6000 steps, a ramp of 40 and a learning rate that falls every 2500 steps."""
    (stage,) = load_recipe(name).stages
    published, steps = Sgd(schedule=Step(every=2500, gamma=0.1)), 6000
    assert stage.settings["ramp"] / stage.steps == 40 / steps
    for step in range(0, steps, 100):
        scaled = step * stage.steps // steps
        assert learning_rate(stage.optimizer, scaled, stage.steps) == learning_rate(published, step, steps)
        assert learning_rate(stage.optimizer_of("discriminator"), scaled, stage.steps) == 1e-4
