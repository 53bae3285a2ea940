"""Values of dual-task consistency by hand, and properties of the consistency."""

import math

import pytest
import torch
from dual_task_fakes import MEAN_S, MEAN_S_SQUARED, half_foreground, set_constant_heads
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_networks

from graftseg.core.types import Progress
from graftseg.data.store import Store
from graftseg.methods.dtc import Dtc, DtcConfig, dual_task_consistency, sigmoid_map
from graftseg.ops.distances import distance_channels, signed_distance
from graftseg.ops.losses import one_hot
from graftseg.recipes.recipe import load_recipe
from graftseg.training import step as stepping
from graftseg.training.step import StepMode
from stepping_fakes import losses, stage_recipe, stepper_of

SHARPNESS = 1500.0


def test_by_hand() -> None:
    """Probabilities are ½ and all distances -½: the sigmoid map is 1 everywhere."""
    method = Dtc(DtcConfig(dice="foreground"), tiny_networks(2, 2))
    set_constant_heads(method, z=0.0, s=-0.5)
    (objective,) = method.objectives(half_foreground(), Progress(torch.tensor(0), 10))
    distance = 1 / 4 + MEAN_S + MEAN_S_SQUARED
    assert objective.terms["dice"].item() == pytest.approx(1 / 3, abs=1e-5)
    assert objective.terms["distance"].item() == pytest.approx(distance)
    assert objective.terms["consistency"].item() == pytest.approx(1 / 4)
    total = 1 / 3 + 0.3 * distance + math.exp(-5) / 4
    assert objective.total.item() == pytest.approx(total, abs=1e-5)


def test_weight_ramps_up_over_6000_steps() -> None:
    method = Dtc(DtcConfig(weight=2.0), tiny_networks(2, 2))
    for step, weight in ((149, 2 * math.exp(-5)), (3000, 2 * math.exp(-5 / 4)), (6000, 2.0)):
        (objective,) = method.objectives(half_foreground(), Progress(torch.tensor(step), 15000))
        assert float(objective.weights["consistency"]) == pytest.approx(weight)


@given(st.floats(0.02, 1))
def test_sigmoid_map_far_from_boundary_is_0_or_1(distance: float) -> None:
    outside, boundary, inside = sigmoid_map(torch.tensor([distance, 0.0, -distance]), SHARPNESS).tolist()
    assert (outside, boundary, inside) == pytest.approx((0.0, 0.5, 1.0), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.integers(0, 99), st.integers(2, 3))
def test_consistency_is_0_for_equal_heads_and_1_for_opposite_heads(classes: int, seed: int, dimensions: int) -> None:
    """The sigmoid map of true distances is the label map, except at boundary voxels, where it is ½."""
    labels = torch.randint(classes, (2, *[6] * dimensions), generator=torch.Generator().manual_seed(seed))
    S = signed_distance(labels, classes, absent=1.0)
    Y = one_hot(labels, classes)
    logits = 1000.0 * Y
    certain = torch.where(Y[:, -distance_channels(classes) :], -1.0, 1.0)
    assert dual_task_consistency(logits, certain, SHARPNESS).item() < 1e-12
    share = (S == 0).float().mean().item()
    assert dual_task_consistency(logits, S, SHARPNESS).item() == pytest.approx(share / 4, abs=1e-6)
    if classes == 2:
        assert dual_task_consistency(logits, -certain, SHARPNESS).item() == pytest.approx(1.0)


def test_consistency_gradient_reaches_both_heads() -> None:
    z, s = torch.zeros(2, 2, 4, 4, requires_grad=True), torch.full((2, 1, 4, 4), 1e-3, requires_grad=True)
    dual_task_consistency(z, s, SHARPNESS).backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None and s.grad is not None
    assert (z.grad != 0).all() and (s.grad != 0).all()


def test_dtc_ignores_bfloat16(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steep sigmoid needs exact distances."""
    monkeypatch.setattr(stepping, "has_bf16", lambda device: True)
    recipe = stage_recipe("unet-2d", "dtc")
    float32, bf16 = (
        losses(stepper_of(recipe, store, mode), range(3)) for mode in (StepMode("float32"), StepMode("bf16"))
    )
    assert torch.equal(float32, bf16)


def test_recipes_have_the_published_settings() -> None:
    published = {
        "la-4/dtc": (15000, 40, "foreground", True),
        "la-8/dtc": (15000, 40, "foreground", True),
        "acdc-3/dtc": (30000, 200, "classes", False),
        "acdc-7/dtc": (30000, 200, "classes", False),
        "pancreas-12/dtc": (6000, 40, "foreground", False),
    }
    common = {"distance_weight": 0.3, "weight": 1.0, "sharpness": 1500.0, "absent": 0.0}
    actual = {}
    for name in published:
        recipe = load_recipe(name)
        (stage,) = recipe.stages
        settings = dict(stage.settings)
        actual[name] = (stage.steps, settings.pop("ramp"), settings.pop("dice"), recipe.inference.largest_component)
        assert settings == common, name
    assert actual == published
