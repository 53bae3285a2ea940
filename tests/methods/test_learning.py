"""Every method learns easy images."""

from typing import Any

import pytest
import torch

from graftseg.core.types import Batch, Labeled, Progress
from graftseg.methods import METHODS, Method
from graftseg.networks import Networks, NetworkSettings
from graftseg.ops.losses import segmentation_loss

SIDE, IMAGES, STEPS, SEED = 16, 4, 30, 2
NETWORKS = Networks(NetworkSettings(name="unet-2d", width=4, levels=2, dropout=False), 1, 3)
# losses for more than two classes; the defaults are for two classes
SETTINGS: dict[str, dict[str, Any]] = {"mc-net": {"dice": "over-batch"}, "ss-net": {"dice": "classes"}}


def blobs(generator: torch.Generator) -> Labeled:
    """Return noisy gray images with a bright and a dark square, classes 1 and 2."""
    labels = torch.zeros(IMAGES, SIDE, SIDE, dtype=torch.long)
    for n, (row, column) in enumerate(torch.randint(1, 9, (IMAGES, 2), generator=generator).tolist()):
        labels[n, row : row + 6, 1 : 1 + 6] = 1
        labels[n, column : column + 6, 9 : 9 + 6] = 2
    brightness = torch.tensor([0.0, 2.0, -2.0])[labels].unsqueeze(1)
    return Labeled(brightness + 0.3 * torch.randn(brightness.shape, generator=generator), labels)


def easy_batch() -> Batch:
    generator = torch.Generator().manual_seed(SEED)
    return Batch(blobs(generator), blobs(generator).images)


def supervised_loss(method: Method, labeled: Labeled) -> float:
    """Return ``½ (CE + Dice)`` of the shipped network in eval mode."""
    method.eval()
    with torch.no_grad():
        loss = segmentation_loss(method.student(labeled.images), labeled.labels)
    method.train()
    return loss.item()


def train(method: Method, batch: Batch) -> None:
    optimizers = {
        name: torch.optim.Adam(method.get_submodule(name).parameters(), lr=0.01) for name in method.trained_modules
    }
    for step in range(STEPS):
        now = Progress(torch.tensor(step), STEPS)
        for objective in method.objectives(batch, now):
            optimizers[objective.updates].zero_grad()
            objective.total.backward()  # type: ignore[no-untyped-call]
            optimizers[objective.updates].step()
        method.after_step(now)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.slow
def test_supervised_loss_falls_by_a_third(name: str) -> None:
    torch.manual_seed(SEED)
    config = METHODS[name].Config.model_validate(SETTINGS.get(name, {}))
    method, batch = METHODS[name](config, NETWORKS).train(), easy_batch()
    before = supervised_loss(method, batch.labeled)
    train(method, batch)
    assert supervised_loss(method, batch.labeled) < before * 2 / 3
