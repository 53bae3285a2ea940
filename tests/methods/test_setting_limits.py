"""Extreme settings are rejected with the recipe; the largest allowed settings give finite losses."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from tiny import SIDE, tiny_batch, tiny_method, tiny_recipe

from graftseg.core.errors import Code
from graftseg.core.types import Progress
from graftseg.methods import METHODS
from user_errors import user_error

RAMPS = [name for name, method in METHODS.items() if "ramp" in method.Config.model_fields]
HUGE = 10**30
WEIGHTS = [
    (name, field)
    for name, method in METHODS.items()
    for field in method.Config.model_fields
    if field.endswith("weight") or field in ("alpha", "consistency", "direct", "emphasis", "separation")
]
EXTREME: list[tuple[str, str, Any]] = [
    *((name, "ramp", value) for name in RAMPS for value in (1e-320, 1e39, 1e308)),
    *((name, "noise", 1e39) for name in ("mean-teacher", "ua-mt", "ss-net")),
    *((name, field, 1e39) for name, field in WEIGHTS),
    ("coranet", "ramp_every", HUGE),
    ("coranet", "refresh_every", HUGE),
    ("ua-mt", "passes", 2 * 10**9),
    ("ss-net", "probe", 1e39),
    ("ss-net", "iterations", 2 * 10**9),
    ("ss-net", "prototypes", 2 * 10**9),
]
LARGEST: list[tuple[str, dict[str, Any]]] = [
    *((name, {"ramp": ramp}) for name in RAMPS for ramp in (1e-6, 1e9)),
    *((name, {field: 1e9}) for name, field in WEIGHTS),
    *((name, {"noise": 1e6}) for name in ("mean-teacher", "ua-mt")),
    ("coranet", {"ramp_every": 10**9, "refresh_every": 10**9}),
    ("ua-mt", {"passes": 64}),
    ("ss-net", {"noise": 1e6, "probe": 1e6}),
    ("ss-net", {"prototypes": 4096}),
    ("dtc", {"sharpness": 1e9}),
    ("ua-mt", {"threshold_start": 1e9, "threshold_end": 0}),
    ("ua-mt", {"threshold_end": 1e9}),
    ("mixup", {"unlabeled_ratio": 1e9}),
]


def test_all_ramps_and_weights_are_found() -> None:
    assert {"ua-mt", "coranet"} <= set(RAMPS)
    assert {("bcp", "alpha"), ("mixup", "direct"), ("sassnet", "distance_weight")} <= set(WEIGHTS)


def test_extreme_settings_are_rejected() -> None:
    accepted = []
    for name, setting, value in EXTREME:
        try:
            METHODS[name].Config.model_validate({setting: value})
        except ValidationError as error:
            assert setting in str(error)
        else:
            accepted.append((name, setting, value))
    assert not accepted


def test_recipe_with_extreme_setting_is_rejected() -> None:
    with user_error(Code.RECIPE_INVALID, keyword="ramp"):
        tiny_recipe(stages=[{"method": "dtc", "steps": 2, "settings": {"ramp": 1e39}}])


@pytest.mark.slow
def test_largest_settings_give_finite_losses() -> None:
    failures = []
    for name, settings in LARGEST:
        for step in (0, 1):
            method = tiny_method(name, 2, **settings)
            objectives = method.objectives(tiny_batch(2, side=SIDE), Progress(torch.tensor(step), 2))
            if not all(objective.total.isfinite() for objective in objectives):
                failures.append((name, settings, step))
    assert not failures
