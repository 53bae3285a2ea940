"""Pre-training of BCP on labeled images, with or without copy-paste."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, Self

from pydantic import Field, model_validator

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.ops.losses import DiceName, mixed_loss, segmentation_loss
from graftseg.ops.masks import Box, MaskSettings, mix


class BcpPretrainConfig(Settings):
    """Settings of pre-training.

    - ``beta``: size of the pasted box relative to the image, along each axis.
    - ``mixing``: whether crops are pasted. If false, the student gets the unmixed labeled images in one batch.
    - ``mask``: shape of the pasted crop.
    - ``loss``: ``whole`` is the loss of the whole mixed image (LA, Pancreas). ``regions`` is the sum of the losses of
      the background image and the pasted crop, each normalized by the size of its region (ACDC).
    - ``dice``, ``legacy_background_mask``: as in ``BcpConfig``.
    """

    beta: float = Field(2 / 3, gt=0, lt=1)
    mixing: bool = True
    mask: MaskSettings = Box()
    loss: Literal["whole", "regions"] = "whole"
    dice: DiceName = "per-sample"
    legacy_background_mask: bool = False

    @model_validator(mode="after")
    def _reject_unused_settings(self) -> Self:
        if self.legacy_background_mask and (self.loss, self.dice) != ("regions", "over-batch"):
            raise ValueError("legacy_background_mask needs loss: regions and dice: over-batch")
        if not self.mixing and (self.loss, self.mask) != ("whole", Box()):
            raise ValueError("with mixing: false, loss must be whole and mask must be omitted")
        return self


class BcpPretrain(Method):
    """Paste a crop of one labeled image onto another, and mix their label maps with the same mask."""

    Config = BcpPretrainConfig
    uses_unlabeled = False
    compiled_functions = ("whole_loss", "mixed_loss")
    config: BcpPretrainConfig

    def __init__(self, config: BcpPretrainConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.whole_loss = partial(segmentation_loss, dice=config.dice)
        self.mixed_loss = partial(mixed_loss, dice=config.dice, legacy_background_mask=config.legacy_background_mask)

    @classmethod
    def check(cls, config: BcpPretrainConfig, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Raise a ValueError if the labeled images cannot be paired, or if the mask does not fit the patch."""
        config.mask.check(patch, config.beta)
        if config.mixing and labeled % 2:
            raise ValueError(f"batches.labeled is {labeled}, but copy-paste needs an even number")

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield the loss of labeled images, which are mixed unless ``mixing`` is false."""
        config = self.config
        if not config.mixing:
            x, y = batch.labeled.images, batch.labeled.labels
            L = self.whole_loss(self.student(x), y)
            yield Objective("student", {"L_pretrain": L}, shows={"X_labeled": x, "Y_labeled": y})
            return
        a, b = batch.labeled.halves()
        M = config.mask.draw(a.labels.shape[1:], config.beta, a.images.device)
        X, Y = mix(a.images, b.images, M), mix(a.labels, b.labels, M)
        Q = self.student(X)
        L = self.whole_loss(Q, Y) if config.loss == "whole" else self.mixed_loss(Q, a.labels, b.labels, M, (1.0, 1.0))
        yield Objective("student", {"L_pretrain": L}, shows={"X_mixed": X, "Y_mixed": Y, "M": M})
