"""Pre-training of CoraNet: three branches learn from labeled images."""

from collections.abc import Iterator
from functools import partial

from pydantic import Field
from torch import nn

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.branches import build_branches
from graftseg.ops.losses import branch_loss


class CoraNetPretrainConfig(Settings):
    """``emphasis``: weight of the foreground in the second branch, and of the background in the third branch."""

    emphasis: float = Field(5.0, ge=1, le=1e9)


class CoraNetPretrain(Method):
    """``¼ [CE(out0) + Dice(out0) + CE_W1(out1) + CE_W2(out2)]`` on labeled images, for the logits of three branches.

    W1 gives more weight to the foreground, W2 to the background.
    """

    Config = CoraNetPretrainConfig
    uses_unlabeled = False
    compiled_functions = ("loss",)
    config: CoraNetPretrainConfig

    def __init__(self, config: CoraNetPretrainConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.loss = partial(branch_loss, emphasis=config.emphasis)

    def build_student(self, networks: Networks) -> nn.Module:
        """Build the recipe's network with three branches; prediction uses the first."""
        return build_branches(networks)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield the loss of the three branches."""
        x, y = batch.labeled.images, batch.labeled.labels
        L = self.loss(self.student(x, all_outputs=True), y)
        yield Objective("student", {"L_pretrain": L}, shows={"X_labeled": x, "Y_labeled": y})
