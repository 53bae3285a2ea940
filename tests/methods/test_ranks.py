"""Every method trains on two ranks as on one: the contract of methods over several devices."""

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from tiny import SIDE, tiny_batch, tiny_method
from torch import Tensor

from graftseg.core import ranks
from graftseg.core.types import Batch, Labeled
from graftseg.methods import METHODS, Method
from graftseg.networks.layers import disable_dropout
from graftseg.ops.optimizers import Sgd
from graftseg.recipes.settings import StageSettings
from graftseg.training.clock import StepClock
from graftseg.training.loop import build_optimizers
from graftseg.training.step import StepMode, Stepper
from rank_fakes import on_ranks

TOLERANCE = 1e-5
SETTINGS: dict[str, dict[str, Any]] = {
    "mean-teacher": {"weight": 100.0},
    "ua-mt": {"weight": 100.0},
    "sassnet": {"adversarial_weight": 1.0},
    "dtc": {"weight": 100.0, "sharpness": 10.0},
    "urpc": {"weight": 100.0},
    "mc-net": {"weight": 100.0},
    "dan": {"weight": 10.0},
    "advent": {"weight": 100.0},
    "ss-net": {"weight": 100.0, "weigh_prototypes": True},
    "coranet": {"consistency": 100.0},
    "bcp": {"dice": "over-batch"},
}
"""Large weights, because ramps start at 0.0067 and would hide a wrong term."""
CPU = torch.device("cpu")


class FakeBatches:
    """Random batches of four labeled and four unlabeled images; a rank gets its rows."""

    device, resident = CPU, True

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions

    def at(self, stage: int, step: int, *, unlabeled: bool = True) -> Batch:
        whole = tiny_batch(self._dimensions, seed=step, side=SIDE)
        own = ranks.own_rows
        return Batch(Labeled(own(whole.labeled.images), own(whole.labeled.labels)), own(whole.unlabeled))

    def draw(self, stage: int, step: int, *, unlabeled: bool = True) -> Any:
        raise NotImplementedError

    def gather(self, table: Tensor) -> Batch:
        raise NotImplementedError


class Trained(NamedTuple):
    """Hash of all weights of a rank and, on rank 0, the largest differences of weights and losses from one process."""

    digest: str
    weights: float = 0.0
    losses: float = 0.0


def train(
    name: str, dimensions: int, steps: int, settings: Mapping[str, Any], *, local: bool = False
) -> tuple[Method, Tensor]:
    """Train tiny networks without dropout; return them with the losses of all steps.

    Discriminators use SGD. Adam divides a gradient by its size, so where it is nearly zero, rounding changes weights.
    """
    method = tiny_method(name, dimensions, **settings)
    disable_dropout(method)
    stage = StageSettings(method=name, steps=steps, optimizers={module: Sgd() for module in method.default_optimizers})
    optimizers, mode = build_optimizers(method, stage), StepMode(local_statistics=local)
    stepper = Stepper(method, optimizers, stage, FakeBatches(dimensions), mode, StepClock(CPU), index=0)
    torch.manual_seed(5)
    return method, torch.stack([stepper(step).values[-1] for step in range(steps)])


def compare(name: str, steps: int, settings: Mapping[str, Any], *, dimensions: int = 2, local: bool = False) -> Trained:
    """Train on all ranks and, on rank 0, in a single process."""
    method, losses = train(name, dimensions, steps, settings, local=local)
    state = method.state_dict()
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in state.values())).hexdigest()
    if not ranks.is_main():
        return Trained(digest)
    with ranks.alone():
        single, expected = train(name, dimensions, steps, settings)
    other = single.state_dict()
    # prototypes are sorted by scores, and rounding may exchange two of them
    names = [key for key in state if not key.endswith(".memory")]
    weights = max(float((state[key].double() - other[key].double()).abs().max()) for key in names)
    return Trained(digest, weights, float((losses - expected).abs().max()))


def require_equal(cases: Mapping[str, partial[Trained]]) -> None:
    """Check that both ranks have the same weights, and the weights and losses of a single process."""
    failures = []
    for name, results in zip(cases, on_ranks(list(cases.values())), strict=True):
        failures += [f"{name}: {result}" for result in results if isinstance(result, str)]
        trained = [result for result in results if isinstance(result, Trained)]
        failures += [f"{name}: {result}" for result in trained if max(result.weights, result.losses) >= TOLERANCE]
        if len({result.digest for result in trained}) != 1:
            failures.append(f"{name}: the ranks have different weights")
    assert not failures, "\n".join(failures)


def test_two_ranks_train_as_one_process() -> None:
    """All networks of a method, its teacher included, have the weights of a single process."""
    require_equal(
        {name: partial(compare, name, 20 if name == "bcp" else 3, SETTINGS.get(name, {})) for name in METHODS}
    )


@pytest.mark.slow
def test_two_ranks_train_as_one_process_for_twenty_steps() -> None:
    cases = {name: partial(compare, name, 20, SETTINGS.get(name, {})) for name in METHODS}
    volumes = {f"{name} 3-D": partial(compare, name, 20, {}, dimensions=3) for name in ("bcp", "graft", "ua-mt")}
    require_equal(cases | volumes)


@pytest.mark.slow
def test_local_statistics_are_equal_on_all_ranks() -> None:
    """With local statistics, the ranks have the same weights and running statistics, but not those of one process."""
    tasks = [partial(compare, name, 3, {}, local=True) for name in ("bcp", "ss-net", "coranet")]
    for first, second in on_ranks(tasks):
        assert first.digest == second.digest
        assert first.weights > TOLERANCE
