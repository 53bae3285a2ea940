"""The usual implementation of a step of bidirectional copy-paste, as in published training scripts.

The step computes the same loss as this package, in float32 without compilation, with torch's layers in the default
memory format. Scipy finds the largest components on the CPU for each sample and class. The optimizer is not fused, the
teacher is averaged parameter by parameter, and the loss is read at every step.
"""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage
from torch import Tensor, nn

from graftseg.core.types import Batch, halves
from graftseg.experiments.speed.stopwatch import Split, Stopwatch, synchronized_time
from graftseg.experiments.speed.subject import Subject
from graftseg.networks.acceleration import plain_layers
from graftseg.networks.ema import Scope, make_teacher
from graftseg.ops.components import chosen_classes
from graftseg.ops.losses import mixed_loss
from graftseg.ops.masks import copy_paste_mask, mix
from graftseg.ops.optimizers import Adam, Sgd, learning_rate
from graftseg.ops.pseudo_labels import decide


class UsualTrainer:
    """Student, teacher and optimizer, with a training step."""

    def __init__(self, subject: Subject) -> None:
        torch.manual_seed(subject.recipe.seed)
        self.config, self.settings, self.device = subject.config, subject.stage.optimizer, subject.device
        self.student = subject.networks.build().to(subject.device).train()
        self.teacher = make_teacher(self.student)
        self.optimizer = _plain_optimizer(self.student, self.settings)
        self.watch: Stopwatch | None = None

    def step(self, batches: Iterator[Batch], step: int, total: int) -> float:
        """Load a batch, update student and teacher, and return the loss."""
        with self._phase("batch"):
            batch = next(batches)
        with self._phase("student forward"):
            loss = self.loss(batch)
        with self._phase("backward"):
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        with self._phase("update"):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.settings, step, total)
                if self.settings.clip_gradient is not None:
                    nn.utils.clip_grad_norm_(group["params"], self.settings.clip_gradient)
            self.optimizer.step()
            average(self.teacher, self.student, self.config.ema_decay, self.config.ema_scope)
            return float(loss.detach())

    def loss(self, batch: Batch) -> Tensor:
        """Return ``L_in + L_out``, with one forward pass for each."""
        i, j = batch.labeled.halves()
        u_p, u_q = halves(batch.unlabeled)
        p_p, p_q = self._pseudo_label(u_p), self._pseudo_label(u_q)
        M = copy_paste_mask(i.labels.shape[1:], self.config.beta, self.device)
        alpha = self.config.alpha
        L_in = self._mixed_loss(mix(j.images, u_p, M), j.labels, p_p, M, (1, alpha))
        L_out = self._mixed_loss(mix(u_q, i.images, M), p_q, i.labels, M, (alpha, 1))
        return L_in + L_out

    @torch.no_grad()
    def _pseudo_label(self, images: Tensor) -> Tensor:
        with self._phase("teacher"):
            probabilities = self.teacher(images).softmax(1)
            labels = decide(probabilities, self.config.decision)
        if not self.config.largest_component:
            return labels
        with self._phase("components"):
            only = chosen_classes(self.config.largest_component)
            return components(labels, probabilities.shape[1], self.config.connectivity, only)

    def _mixed_loss(
        self, X: Tensor, background: Tensor, foreground: Tensor, M: Tensor, weights: tuple[float, float]
    ) -> Tensor:
        logits, dice, legacy = self.student(X), self.config.dice, self.config.legacy_background_mask
        return mixed_loss(logits, background, foreground, M, weights, dice=dice, legacy_background_mask=legacy)

    def _phase(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.watch is None else self.watch.phase(name)


def components(labels: Tensor, classes: int, connectivity: int | None, only: Collection[int] | None = None) -> Tensor:
    """Keep the largest component of each sample and class, found by scipy. Classes not in ``only`` stay unchanged."""
    kept = torch.zeros_like(labels)
    for sample in range(len(labels)):
        host = labels[sample].cpu().numpy()
        structure = ndimage.generate_binary_structure(host.ndim, connectivity or host.ndim)
        result = np.zeros_like(host)
        for value in range(1, classes):
            members = host == value
            result[members if only is not None and value not in only else _largest(members, structure)] = value
        kept[sample] = torch.from_numpy(result).to(labels.device)
    return kept


@torch.no_grad()
def average(teacher: nn.Module, student: nn.Module, decay: float, scope: Scope) -> None:
    """Update the teacher by eq. (10) of the paper, one tensor at a time."""
    for parameter, source in zip(teacher.parameters(), student.parameters(), strict=True):
        parameter.mul_(decay).add_(source, alpha=1 - decay)
    if scope == "state":
        for buffer, new in zip(teacher.buffers(), student.buffers(), strict=True):
            buffer.copy_(decay * buffer + (1 - decay) * new)


def time_whole(trainer: UsualTrainer, batches: Iterator[Batch], warm_up: int, steps: int) -> float:
    """Return the seconds per step, including data loading."""
    total = warm_up + steps
    with _script_settings():
        for step in range(warm_up):
            trainer.step(batches, step, total)
        begin = synchronized_time(trainer.device)
        for step in range(warm_up, total):
            trainer.step(batches, step, total)
        return (synchronized_time(trainer.device) - begin) / steps


def time_phases(trainer: UsualTrainer, batches: Iterator[Batch], steps: int) -> Split:
    """Return the seconds per step of each phase. ``batch`` is waiting for the loader and copying to the device."""
    trainer.watch = Stopwatch(trainer.device)
    with _script_settings():
        for step in range(steps):
            trainer.step(batches, step, steps)
    split, trainer.watch = trainer.watch.per_step(steps), None
    return split


def _largest(mask: npt.NDArray[np.bool_], structure: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    numbered, count = ndimage.label(mask, structure)
    if not count:
        return mask
    largest: npt.NDArray[np.bool_] = numbered == np.bincount(numbered.ravel())[1:].argmax() + 1
    return largest


def _plain_optimizer(module: nn.Module, settings: Sgd | Adam) -> torch.optim.Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    if isinstance(settings, Sgd):
        return torch.optim.SGD(module.parameters(), lr=rate, momentum=settings.momentum, weight_decay=decay)
    return torch.optim.Adam(module.parameters(), lr=rate, betas=settings.betas, weight_decay=decay)


@contextmanager
def _script_settings() -> Iterator[None]:
    """Use deterministic convolutions and torch's default for TF32, as the published scripts do."""
    cudnn = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True)
    with plain_layers(), cudnn:
        yield
