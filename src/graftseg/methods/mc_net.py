"""Mutual consistency between decoders with different upsampling (MICCAI 2021)."""

from collections.abc import Iterator
from functools import partial
from itertools import permutations
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.branches import MultiDecoder
from graftseg.ops.losses import dice_over_batch, foreground_dice_of_sums, sharpen
from graftseg.ops.optimizers import RampLength, consistency_ramp

DecoderDice = Literal["of-sums", "over-batch"]


class McNetConfig(Settings):
    """Settings of MC-Net; the defaults are the values of MC-Net's public code for the left atrium.

    - ``decoders``: 2, or 3 for MC-Net+.
    - ``dice``: Dice loss of each decoder; there is no cross-entropy. ``of-sums``: plain sums over the batch, without
      the background (LA). ``over-batch``: sums of squares, with the background (ACDC).
    - ``half_dice``: omit the factor 2 of the overlap in ``over-batch``, as the public code for ACDC does. A perfect
      prediction then has a loss of ½, and gradients are half as large.
    - ``dice_weight``: weight of the sum of the Dice losses.
    - ``weight``: weight of the consistency, multiplied by a ramp that reaches 1 after ``ramp`` times 150 steps.
    - ``temperature``: temperature of the sharpened targets of the consistency.
    """

    decoders: Literal[2, 3] = 2
    dice: DecoderDice = "of-sums"
    half_dice: bool = False
    dice_weight: float = Field(0.5, ge=0, le=1e9)
    weight: float = Field(1.0, ge=0, le=1e9)
    ramp: RampLength = 40
    temperature: float = Field(0.1, ge=0.01, le=1)

    @model_validator(mode="after")
    def _reject_unused_settings(self) -> Self:
        if self.half_dice and self.dice != "over-batch":
            raise ValueError("half_dice needs dice: over-batch")
        return self


class McNet(Method):
    """A student with several decoders. On all images, each decoder learns from sharpened predictions of the others.

    Gradients of the consistency also pass through the sharpened targets, as published. Labeled and unlabeled images go
    through the student in one batch. Prediction uses the first decoder.
    """

    Config = McNetConfig
    compiled_functions = ("dice", "consistency")
    config: McNetConfig

    def __init__(self, config: McNetConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.dice = partial(decoder_dice, dice=config.dice, half=config.half_dice)
        self.consistency = partial(mutual_consistency, temperature=config.temperature)

    def build_student(self, networks: Networks) -> nn.Module:
        """Build the recipe's network with several decoders."""
        return MultiDecoder(networks.build(), self.config.decoders)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``w_dice Σ_d Dice_d + w L_c``, where Dice_d is the Dice loss of decoder d."""
        config, x_l, x_u, y = self.config, batch.labeled.images, batch.unlabeled, batch.labeled.labels
        z = self.student(torch.cat([x_l, x_u]), all_outputs=True)
        n = len(x_l)
        terms = {"dice": self.dice([z_d[:n] for z_d in z], y), "consistency": self.consistency(z)}
        weights: dict[str, float | Tensor] = {
            "dice": config.dice_weight,
            "consistency": config.weight * consistency_ramp(now.step, config.ramp),
        }
        shows = {"X_labeled": x_l, "Y_labeled": y, "X_unlabeled": x_u, "Y_unlabeled": z[0][n:].argmax(1)}
        yield Objective("student", terms, weights, shows)


def decoder_dice(logits: list[Tensor], labels: Tensor, dice: DecoderDice, *, half: bool = False) -> Tensor:
    """Return the sum of the decoders' Dice losses. With ``half``, each loss is one minus half of the Dice."""
    dice_loss = foreground_dice_of_sums if dice == "of-sums" else dice_over_batch
    losses = torch.stack([dice_loss(z_d.float().softmax(1), labels) for z_d in logits])
    return ((1 + losses) / 2 if half else losses).sum()


def mutual_consistency(logits: list[Tensor], temperature: float) -> Tensor:
    """Return ``L_c = Σ_{i≠j} mean (p_i - sharpen(p_j))²`` for decoders i and j; means over samples, classes, voxels."""
    p = [z_d.float().softmax(1) for z_d in logits]
    s = [sharpen(p_d, temperature) for p_d in p]
    return torch.stack([F.mse_loss(p[i], s[j]) for i, j in permutations(range(len(p)), 2)]).sum()
