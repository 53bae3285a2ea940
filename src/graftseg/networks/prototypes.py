"""Heads that separate classes in feature space by distances from stored prototypes.

All shapes are fixed: every voxel is projected, and unused voxels are masked. A row is the feature vector of a voxel.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.core.ranks import all_sum, count, gather_rows
from graftseg.networks.encoder_decoder import EncoderDecoder
from graftseg.networks.layers import RowNorm

KeptScores = Literal["lowest", "highest"]
EMBEDDING_SIZE = 32  # length of a projected feature vector


class PrototypeNetwork(EncoderDecoder):
    """A network with a class separation head on its features."""

    def __init__(self, network: EncoderDecoder, separation: "ClassSeparation") -> None:
        super().__init__(network.encoder, network.decoder, network.head, network.stride)
        self.separation = separation

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return logits ``(B, classes, *space)`` and, if ``all_outputs``, features ``(B, width, *space)``."""
        features = self.decode(self.encode(images))
        logits: Tensor = self.head(features)
        return (logits, features) if all_outputs else logits


class VoxelMlp(nn.Sequential):
    """Linear layer, batch norm, ReLU and linear layer, applied to rows."""

    def __init__(self, in_channels: int) -> None:
        super().__init__(
            nn.Linear(in_channels, EMBEDDING_SIZE),
            RowNorm(EMBEDDING_SIZE),
            nn.ReLU(inplace=True),
            nn.Linear(EMBEDDING_SIZE, EMBEDDING_SIZE),
        )

    def forward_eval(self, rows: Tensor) -> Tensor:
        """Return the output of eval mode, without changing the mode."""
        first, norm, activation, last = self
        assert isinstance(norm, nn.BatchNorm1d)
        normed = F.batch_norm(first(rows), norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
        embedding: Tensor = last(activation(normed))
        return embedding


class VoxelSelector(nn.Module):
    """A score of each row: linear layer, batch norm, leaky ReLU, linear layer. The norm uses only rows in the mask."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(EMBEDDING_SIZE, EMBEDDING_SIZE), nn.Linear(EMBEDDING_SIZE, 1)
        self.gain, self.offset = nn.Parameter(torch.ones(EMBEDDING_SIZE)), nn.Parameter(torch.zeros(EMBEDDING_SIZE))

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Convert rows ``(N, 32)`` and their mask to scores ``(N)``, which are logits."""
        x, m = self.first(rows).float(), mask.float().unsqueeze(1)
        n = all_sum(m.sum()).clamp(min=1)
        mean = all_sum((m * x).sum(0)) / n
        var = all_sum((m * (x - mean).square()).sum(0)) / n
        scale = self.gain * torch.rsqrt(var + 1e-5)
        normed = torch.addcmul(self.offset - mean * scale, x, scale)
        scores: Tensor = self.last(F.leaky_relu(normed, 0.2)).float()
        return scores.squeeze(1)


class ClassSeparation(nn.Module):
    """Heads for projection and prediction, and two selectors and the prototypes of each class.

    - ``slots``: number of prototypes of a foreground class. The background has none.
    - ``keep``: whether voxels with the lowest or the highest scores of the first selector become prototypes.
    - ``weigh_memory``: whether the second selector of a class weights its prototypes. Otherwise it is unused.
    """

    memory: Tensor
    filled: Tensor

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        slots: int = 32,
        keep: KeptScores = "lowest",
        weigh_memory: bool = False,
    ) -> None:
        super().__init__()
        self.keep, self.weigh_memory = keep, weigh_memory
        self.project, self.predict = VoxelMlp(in_channels), VoxelMlp(EMBEDDING_SIZE)
        self.selectors = nn.ModuleList(VoxelSelector() for _ in range(classes))
        self.memory_selectors = nn.ModuleList(VoxelSelector() for _ in range(classes))
        self.register_buffer("memory", torch.zeros(classes, slots, EMBEDDING_SIZE))
        self.register_buffer("filled", torch.zeros(classes, slots, dtype=torch.bool))

    def forward(
        self, labeled: tuple[Tensor, Tensor, Tensor], unlabeled: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Update the prototypes, then return the mean distances of labeled and of unlabeled voxels from the prototypes.

        - ``labeled``: features, labels and predicted labels.
        - ``unlabeled``: features and predicted labels.
        """
        features_l, labels, predicted_l = labeled
        rows_l, y = voxel_rows(features_l), labels.reshape(-1)
        self.update_prototypes(rows_l, y, predicted_l.reshape(-1) == y)
        distance_l = self.prototype_distance(rows_l, y)
        features_u, predicted_u = unlabeled
        return distance_l, self.prototype_distance(voxel_rows(features_u), predicted_u.reshape(-1))

    @torch.no_grad()
    def update_prototypes(self, rows: Tensor, labels: Tensor, correct: Tensor) -> None:
        """Replace the prototypes of each foreground class by correctly predicted voxels, if the class has any.

        Of these voxels, those with the lowest (or highest) scores become prototypes, up to the number of slots.
        """
        v = self.project.forward_eval(rows).float()
        excluded = float("-inf" if self.keep == "highest" else "inf")
        for c in range(1, len(self.memory)):
            m = correct & (labels == c)
            scores = self.selectors[c](v, m).masked_fill(~m, excluded)
            best, prototypes = self._best(scores, v)
            if count() > 1:
                best, prototypes = self._best(gather_rows(best), gather_rows(prototypes))
            is_correct, is_any_correct = best.isfinite(), all_sum(m.sum()) > 0
            memory, filled = self.memory[c, : len(best)], self.filled[c, : len(best)]
            memory.copy_(torch.where(is_any_correct, prototypes, memory))
            filled.copy_(torch.where(is_any_correct, is_correct, filled))

    def _best(self, scores: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lowest (or highest) scores and their rows, up to the number of slots."""
        best, indices = scores.topk(min(self.memory.shape[1], len(scores)), largest=self.keep == "highest")
        return best, rows[indices]

    def prototype_distance(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Return ``Σ_c mean_ij (1 - cos(v_i, m_j)) / K`` for foreground classes c, their voxels i and prototypes j.

        K is the number of classes, including the background. The mean over i has weights from the first selector of the
        class. A class with fewer than two voxels or prototypes adds 0. The mean over j is computed from the mean of the
        normalized prototypes.
        """
        v = self.predict(self.project(rows)).float()
        direction = F.normalize(v, dim=1)
        loss: Tensor = v.new_zeros(())
        for c in range(1, len(self.memory)):
            m = labels == c
            a = self.selectors[c](v.detach(), m).sigmoid() * m
            d = 1 - (direction * self._center(c)).sum(1)
            enough = (all_sum(m.sum()) > 1) & (self.filled[c].sum() > 1)
            loss = loss + enough * all_sum((a * d).sum()) / all_sum(a.sum()).clamp(min=1e-12)
        return loss / len(self.memory)

    def _center(self, c: int) -> Tensor:
        """Return the mean of the normalized prototypes of a class."""
        prototypes, b = F.normalize(self.memory[c], dim=1), self.filled[c].float()
        if self.weigh_memory:
            b = b * self.memory_selectors[c](prototypes, self.filled[c]).sigmoid()
        return (b.unsqueeze(1) * prototypes).sum(0) / b.sum().clamp(min=1e-12)


def voxel_rows(features: Tensor) -> Tensor:
    """Reshape ``(B, C, *space)`` to ``(voxels, C)``."""
    return features.movedim(1, -1).reshape(-1, features.shape[1])
