"""Measurement of the seconds per step on this machine. A few steps are trained on random images."""

from collections.abc import Callable, Sequence
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
from graftseg.recipes.recipe import Recipe
from graftseg.training.clock import StepClock
from graftseg.training.loop import build_optimizers
from graftseg.training.step import WARM_UP, StepMode, Stepper

TIMED_STEPS = 3
MAX_SECONDS = 8.0
"""No further step is timed if the timed steps of a recipe took this number of seconds."""

Measure = Callable[[int], float]
"""Function that runs the step with this number and returns its seconds."""


def seconds_per_step(recipes: Sequence[Recipe], channels: int, classes: int, device: torch.device) -> list[float]:
    """Return, for each recipe, the shortest time of a few steps of its last stage, with augmentation.

    On a CPU, the recipes take turns, so that other programs slow all of them alike. On a GPU, they are measured one
    after another, because a captured step keeps its memory. Networks are not compiled, so a long run on a GPU, which
    compiles them, is faster.
    """
    groups = [recipes] if device.type == "cpu" else [[recipe] for recipe in recipes]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        return [
            seconds
            for group in groups
            for seconds in _shortest([_measure(recipe, channels, classes, device) for recipe in group], device)
        ]


def _shortest(measures: Sequence[Measure], device: torch.device) -> list[float]:
    """Return the shortest time of each recipe after a warm-up. The recipes take turns.

    On a CPU, only the warm-up is measured if one of its steps takes longer than ``MAX_SECONDS``.
    """
    warm_up = WARM_UP + 2 if device.type == "cuda" else 1
    turns = [[measure(step) for measure in measures] for step in range(warm_up)]
    if device.type == "cuda" or max(turns[0]) <= MAX_SECONDS:
        turns = []
    while not turns or (len(turns) < TIMED_STEPS and max(map(sum, zip(*turns, strict=True))) < MAX_SECONDS):
        turns.append([measure(warm_up + len(turns)) for measure in measures])
    return [min(times) for times in zip(*turns, strict=True)]


def _measure(recipe: Recipe, channels: int, classes: int, device: torch.device) -> Measure:
    """Return a function that augments random images and trains a step of the last stage."""
    stage, loop, batches = recipe.stages[-1], recipe.loop, recipe.batches
    method = build_method(recipe, stage, channels, classes, device).train()
    mode = StepMode.chosen(loop.precision, device, stage.steps, compiled=False, captured=loop.captured)
    noise = ConstantBatches(_noise(recipe, channels, classes, device), device)
    stepper = Stepper(method, build_optimizers(method, stage), stage, noise, mode, StepClock(device), index=0)
    memory, rng = torch.randn(channels * prod(batches.patch), device=device).half(), np.random.default_rng(0)

    def measure(step: int) -> float:
        began = perf_counter()
        _augment(memory, batches, channels, rng)
        stepper(step)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return perf_counter() - began

    return measure


def _augment(memory: Tensor, settings: BatchSettings, channels: int, rng: np.random.Generator) -> None:
    """Cut a batch of patches from ``memory``, with the deformation and intensity augmentation of the settings."""
    count, patch, device = settings.labeled + settings.unlabeled, settings.patch, memory.device
    images = torch.zeros(count, channels, *patch, device=device)
    if settings.warp is not None:
        shapes = np.tile(np.array(patch, dtype=np.int64), (count, 1))
        strides = np.array([prod(patch[axis + 1 :]) for axis in range(len(patch))], dtype=np.int64)
        warp = draw_warp(rng, np.zeros_like(shapes), patch, settings.warp)
        offsets = np.tile(np.arange(channels) * prod(patch), (count, 1))
        table = with_offsets(warp_table(warp, shapes, np.tile(strides, (count, 1))), offsets, offsets[:, 0])
        images, _ = gather(to_device(table, device), memory, None, patch, channels, settings.warp.grid)
    if settings.intensity is not None:
        augment_intensities(images, to_device(draw_intensities(rng, count, settings.intensity), device))


@dataclass(frozen=True)
class ConstantBatches:
    """The same batch in every step, in place of ``graftseg.data.batches.Batches``."""

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
    unlabeled_images = torch.randn(unlabeled, channels, *patch, device=device)
    return Batch(Labeled(images, torch.randint(classes, (labeled, *patch), device=device)), unlabeled_images)
