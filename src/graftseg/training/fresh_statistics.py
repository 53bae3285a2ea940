"""Batch-norm statistics of the present weights, for predictions during training."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from graftseg.data.batches import Batches
from graftseg.methods import Method
from graftseg.networks.layers import eval_mode
from graftseg.training.step import uncompiled

BATCHES = 10
"""Number of batches whose statistics are averaged."""


def training_images(batches: Batches, stage: int, *, unlabeled: bool) -> Iterator[Tensor]:
    """Yield the images of the first batches of a stage, with or without the unlabeled ones."""
    for step in range(BATCHES):
        with torch.autocast(batches.device.type, enabled=False):
            batch = batches.at(stage, step, unlabeled=unlabeled)
        yield torch.cat([batch.labeled.images, batch.unlabeled])


@contextmanager
def fresh_statistics(method: Method, images: Iterable[Tensor]) -> Iterator[None]:
    """Inside the block, give the student the mean batch-norm statistics of some batches of images.

    At a high learning rate, the running statistics belong to earlier weights, and a good network may predict nothing
    with them. Training is not changed: after the block, all statistics are as before.
    """
    norms = [part for part in method.student.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
    before = [(norm, norm.momentum, {name: one.clone() for name, one in norm.named_buffers()}) for norm in norms]
    try:
        if norms:
            _average_statistics(method, norms, images)
        yield
    finally:
        for norm, momentum, buffers in before:
            norm.momentum = momentum
            norm.load_state_dict(buffers, strict=False)


@torch.no_grad()
def _average_statistics(method: Method, norms: list[_BatchNorm], images: Iterable[Tensor]) -> None:
    with eval_mode(method), uncompiled():
        for norm in norms:
            norm.train()
        for count, batch in enumerate(images, start=1):
            for norm in norms:
                norm.momentum = 1 / count  # the mean of all batches so far
            method.student(batch)
