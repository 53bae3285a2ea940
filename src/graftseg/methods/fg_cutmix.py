"""Fine-grained CutMix: patches are exchanged at random within a batch, and predictions are moved back.

The BCP paper lists this method in a table of interpolation strategies. The paper only states that images of the batch
are cropped into 4x4 patches, which are combined at random. Two choices are ours: a patch keeps its position in the
image, and a third axis is not divided.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from graftseg.core.ranks import gather_rows, own_rows
from graftseg.core.settings import Voxels
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.teachers import SelfTraining, SelfTrainingConfig
from graftseg.networks import Networks
from graftseg.ops.losses import segmentation_loss
from graftseg.ops.perturbations import check_grid, draw_permutations, exchange_patches, invert_permutations

DEFAULT_GRID = (4, 4, 1)
"""Default number of cells along each axis."""


class FgCutmixConfig(SelfTrainingConfig):
    """``cells``: number of grid cells along each axis; by default 4 along the first two axes and 1 along the third."""

    cells: tuple[Voxels, ...] | None = None


class FgCutmix(SelfTraining):
    """A student whose images have exchanged patches. Its logits are moved back to the original images.

    Each image is then supervised by its label or by the mean teacher's pseudo-label. Labeled and unlabeled images
    go through the student in one batch.
    """

    Config = FgCutmixConfig
    compiled_functions = ("loss",)
    config: FgCutmixConfig

    def __init__(self, config: FgCutmixConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.loss = partial(segmentation_loss, dice=config.dice)
        self.cells = config.cells or DEFAULT_GRID[: networks.dimensions]

    @classmethod
    def check(cls, config: FgCutmixConfig, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Raise a ValueError if the grid does not fit the axes or the patch."""
        super().check(config, labeled=labeled, unlabeled=unlabeled, patch=patch)
        if config.cells is not None and len(config.cells) != len(patch):
            raise ValueError(f"cells has {len(config.cells)} numbers, but images have {len(patch)} axes")
        check_grid(config.cells or DEFAULT_GRID[: len(patch)], patch)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``L_seg`` of the labeled images plus ``alpha`` times ``L_seg`` of the unlabeled images."""
        y_l, y_u = batch.labeled.labels, self._pseudo_label(self.teacher, batch.for_teacher)
        x = gather_rows(torch.cat([batch.labeled.images, batch.unlabeled]))
        permutations = draw_permutations(self.cells, len(x), x.device)
        x_mixed = own_rows(exchange_patches(x, permutations))
        z_mixed = gather_rows(self.student(x_mixed).float())
        z = own_rows(exchange_patches(z_mixed, invert_permutations(permutations)))
        z_l, z_u = z[: len(y_l)], z[len(y_l) :]
        terms = {"L_labeled": self.loss(z_l, y_l), "L_unlabeled": self.loss(z_u, y_u)}
        y = gather_rows(torch.cat([y_l, y_u]).unsqueeze(1))
        y_mixed = own_rows(exchange_patches(y, permutations)).squeeze(1)
        shows = {"X_mixed": x_mixed, "Y_mixed": y_mixed}
        yield Objective("student", terms, {"L_unlabeled": self.config.alpha}, shows)
