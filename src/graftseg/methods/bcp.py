"""Bidirectional copy-paste between labeled and unlabeled images (CVPR 2023)."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from graftseg.core.devices import side_stream
from graftseg.core.types import Batch, Labeled, Objective, Progress, halves
from graftseg.methods.teachers import SelfTraining, SelfTrainingConfig, check_pairs
from graftseg.networks import Networks
from graftseg.ops.losses import mixed_loss, segmentation_loss
from graftseg.ops.masks import Box, Direction, MaskSettings, mix, mixtures


class BcpConfig(SelfTrainingConfig):
    """Settings of self-training by copy-paste; the defaults are the paper's values.

    - ``beta``: size of the pasted box relative to the image, along each axis.
    - ``direction``: ``in`` pastes unlabeled crops onto labeled images. ``out`` pastes labeled crops onto unlabeled
      images. ``both`` makes both mixtures. ``within`` pastes labeled crops onto labeled images, and unlabeled crops
      onto unlabeled images. ``none`` pastes nothing.
    - ``mask``: shape of the pasted crop.
    - ``legacy_background_mask``: compute the Dice loss of the background class over the whole image instead of inside
      the mask, as the public code did until October 2023.
    - ``labeled_weight``: weight of the loss of the unmixed labeled images; with 0, as published, they are not used.
    - ``joint``: pass all mixtures through the student in one batch, and all unlabeled images through the teacher in one
      batch. This is faster, but batch statistics then include the whole batch. Otherwise, the student gets one mixture
      after the other, and the teacher gets the unlabeled images in two halves, with separate batch statistics.
    """

    beta: float = Field(2 / 3, gt=0, lt=1)
    direction: Direction = "both"
    mask: MaskSettings = Box()
    legacy_background_mask: bool = False
    labeled_weight: float = Field(0.0, ge=0, le=1e9)
    joint: bool = False

    @model_validator(mode="after")
    def _reject_unused_settings(self) -> Self:
        if self.legacy_background_mask and self.dice != "over-batch":
            raise ValueError("legacy_background_mask needs dice: over-batch")
        if self.direction in ("within", "none") and self.labeled_weight:
            # the mixtures of these directions already have a term L_labeled
            raise ValueError("labeled_weight needs direction: in, out or both")
        if self.direction == "none" and self.mask != Box():
            raise ValueError("mask has no effect with direction: none")
        return self


class Bcp(SelfTraining):
    """A student that learns from mixtures of labeled and unlabeled images.

    The targets are true labels and pseudo-labels of a mean teacher, mixed like the images. As published, the teacher
    stays in training mode.
    """

    Config = BcpConfig
    compiled_functions = ("mixed_loss", "whole_loss")
    config: BcpConfig

    def __init__(self, config: BcpConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.whole_loss = partial(segmentation_loss, dice=config.dice)
        self.mixed_loss = partial(mixed_loss, dice=config.dice, legacy_background_mask=config.legacy_background_mask)

    @classmethod
    def check(cls, config: BcpConfig, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Raise a ValueError if the mask does not fit, or if the numbers of images are odd or different."""
        check_pairs(labeled, unlabeled, "copy-paste", even=True)
        config.mask.check(patch, config.beta)
        super().check(config, labeled=labeled, unlabeled=unlabeled, patch=patch)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield the loss of every mixture; by default ``L_all = L_in + L_out``, Eqs. (1) to (9)."""
        with side_stream(batch.unlabeled) as wait_for_labels:
            P = self._pseudo_label(self._teacher_logits, batch.for_teacher)
        M = self._draw_mask(batch.labeled.labels)
        mixed = mixtures(self.config.direction, batch.labeled, Labeled(batch.unlabeled, P), self.config.alpha)
        X = [mix(mixture.background.images, mixture.foreground.images, M) for mixture in mixed.values()]
        unmixed = [batch.labeled.images] if self.config.labeled_weight else []
        Q = self._logits(self.student, [*X, *unmixed])
        wait_for_labels()
        terms: dict[str, Tensor] = {}
        weights: dict[str, float | Tensor] = {}
        shows: dict[str, Tensor] = {}
        for index, (name, mixture) in enumerate(mixed.items()):
            Y_b, Y_f = mixture.background.labels, mixture.foreground.labels
            terms[f"L_{name}"] = self.mixed_loss(Q[index], Y_b, Y_f, M, mixture.weights)
            shows |= {f"X_{name}": X[index], f"Y_{name}": mix(Y_b, Y_f, M)}
        if unmixed:
            terms["L_labeled"] = self.whole_loss(Q[-1], batch.labeled.labels)
            weights["L_labeled"] = self.config.labeled_weight
        yield Objective("student", terms, weights, shows={**shows, "M": M})

    def _draw_mask(self, labels: Tensor) -> Tensor:
        space = labels.shape[1:]
        if self.config.direction == "none":
            return torch.ones(space, dtype=torch.bool, device=labels.device)
        return self.config.mask.draw(space, self.config.beta, labels.device)

    def _teacher_logits(self, images: Tensor) -> Tensor:
        return torch.cat(self._logits(self.teacher, halves(images)))

    def _logits(self, network: nn.Module, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of each part. Batch statistics are separate unless ``joint`` is set."""
        if not self.config.joint:
            return [network(part) for part in parts]
        return list(network(torch.cat([*parts])).split([len(part) for part in parts]))
