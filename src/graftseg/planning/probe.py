"""Seconds of a step on this machine, by running a few of them on noise."""

from time import perf_counter

import torch

from graftseg.models import build_method
from graftseg.optimizers import build_optimizer, learning_rate, update
from graftseg.recipe import Recipe
from graftseg.stepping import autocast
from graftseg.types import Batch, Labeled, Progress

STEPS = 3
PATIENCE = 8.0
"""Seconds after which no further step is timed."""


def seconds_per_step(recipe: Recipe, channels: int, classes: int, device: torch.device) -> float:
    """The shortest of a few steps of a recipe's last stage, after one that is not timed unless it is slow.

    On a GPU a training also captures its steps, so that it is faster than this.
    """
    stage = recipe.stages[-1]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        method = build_method(recipe, stage, channels, classes, device).train()
        optimizers = {
            name: build_optimizer(method.get_submodule(name), stage.optimizer_of(name)) for name in method.moves
        }
        batch, now = _noise(recipe, channels, classes, device), Progress(torch.zeros((), device=device), stage.steps)
        times: list[float] = []
        while len(times) <= STEPS and sum(times) < PATIENCE:
            began = perf_counter()
            pending = method.objectives(batch, now)
            while True:
                with autocast(recipe.loop.precision, device):
                    objective = next(pending, None)
                if objective is None:
                    break
                optimizer, settings = optimizers[objective.updates], stage.optimizer_of(objective.updates)
                optimizer.zero_grad(set_to_none=True)
                objective.total.backward()  # type: ignore[no-untyped-call]
                update(optimizer, settings, learning_rate(settings, 0, stage.steps))
            method.after_step(now)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(perf_counter() - began)
    return min(times[1:] or times)


def _noise(recipe: Recipe, channels: int, classes: int, device: torch.device) -> Batch:
    patch, labeled, unlabeled = recipe.batches.patch, recipe.batches.labeled, recipe.batches.unlabeled
    images = torch.randn(labeled, channels, *patch, device=device)
    others = torch.randn(unlabeled, channels, *patch, device=device)
    return Batch(Labeled(images, torch.randint(classes, (labeled, *patch), device=device)), others)
