"""Measurement of the seconds per step on this machine, with a few steps on noise."""

from dataclasses import dataclass
from math import prod
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from graftseg.core.types import Batch, Labeled
from graftseg.data.augment import Table, to_device
from graftseg.data.batches import BatchSettings
from graftseg.data.intensity_augment import augment_intensities, draw_intensities
from graftseg.data.stream import gather, with_offsets
from graftseg.data.warp import draw_warp, warp_table
from graftseg.inference.model import build_method
from graftseg.ops.optimizers import build_optimizer
from graftseg.recipes.recipe import Recipe
from graftseg.training.clock import StepClock
from graftseg.training.step import WARM_UP, StepMode, Stepper

TIMED_STEPS = 3
MAX_SECONDS = 8.0
"""No further step is timed after this number of seconds."""


def seconds_per_step(recipe: Recipe, channels: int, classes: int, device: torch.device) -> float:
    """Return the shortest time of a few steps of the last stage. On a GPU, a captured step is replayed, as in training.

    A long run is faster than this measurement, because training compiles the networks of a long run.
    """
    stage, loop = recipe.stages[-1], recipe.loop
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        method = build_method(recipe, stage, channels, classes, device).train()
        optimizers = {
            name: build_optimizer(method.get_submodule(name), stage.optimizer_of(name))
            for name in method.trained_modules
        }
        mode = StepMode.chosen(loop.precision, device, stage.steps, compiled=False, captured=loop.captured)
        noise = ConstantBatches(_noise(recipe, channels, classes, device), device)
        return gather_seconds(recipe.batches, channels, device) + _shortest(
            Stepper(method, optimizers, stage, noise, mode, StepClock(device), index=0), device
        )


def gather_seconds(settings: BatchSettings, channels: int, device: torch.device) -> float:
    """Return the shortest time to augment a batch of noise; 0 without deformation and intensity augmentation."""
    count, patch = settings.labeled + settings.unlabeled, settings.patch
    shapes, rng = np.tile(np.array(patch, dtype=np.int64), (count, 1)), np.random.default_rng(0)
    strides = np.array([prod(patch[axis + 1 :]) for axis in range(len(patch))], dtype=np.int64)
    memory = torch.randn(channels * prod(patch), device=device).half()
    times = []
    for _ in range(TIMED_STEPS):
        began = perf_counter()
        images = torch.zeros(count, channels, *patch, device=device)
        if settings.warp is not None:
            warp = draw_warp(rng, np.zeros_like(shapes), patch, settings.warp)
            offsets = np.tile(np.arange(channels) * prod(patch), (count, 1))
            table = with_offsets(warp_table(warp, shapes, np.tile(strides, (count, 1))), offsets, offsets[:, 0])
            images, _ = gather(to_device(table, device), memory, None, patch, channels, settings.warp.grid)
        if settings.intensity is not None:
            augment_intensities(images, to_device(draw_intensities(rng, count, settings.intensity), device))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(perf_counter() - began)
    return min(times) if settings.warp or settings.intensity else 0.0


def _shortest(stepper: Stepper, device: torch.device) -> float:
    """Return the shortest time after warm-up. On a CPU, a first step longer than ``MAX_SECONDS`` is the result."""
    first = [_measure(stepper, step, device) for step in range(WARM_UP + 2 if device.type == "cuda" else 1)]
    times = first if device.type == "cpu" and first[0] > MAX_SECONDS else []
    while len(times) < TIMED_STEPS and sum(times) < MAX_SECONDS:
        times.append(_measure(stepper, len(first) + len(times), device))
    return min(times)


def _measure(stepper: Stepper, step: int, device: torch.device) -> float:
    began = perf_counter()
    stepper(step)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - began


@dataclass(frozen=True)
class ConstantBatches:
    """Batches that are the same in every step."""

    batch: Batch
    device: torch.device
    resident: bool = True

    def at(self, stage: int, step: int, *, unlabeled: bool = True) -> Batch:
        """Return the batch."""
        return self.batch

    def draw(self, stage: int, step: int, *, unlabeled: bool = True) -> Table:
        """Return zeros, with enough columns for the step number and the learning rates."""
        return np.zeros((1, 8))

    def gather(self, table: Tensor) -> Batch:
        """Return the batch."""
        return self.batch


def _noise(recipe: Recipe, channels: int, classes: int, device: torch.device) -> Batch:
    patch, labeled, unlabeled = recipe.batches.patch, recipe.batches.labeled, recipe.batches.unlabeled
    images = torch.randn(labeled, channels, *patch, device=device)
    others = torch.randn(unlabeled, channels, *patch, device=device)
    return Batch(Labeled(images, torch.randint(classes, (labeled, *patch), device=device)), others)
