"""Prediction in bfloat16, verified against float32."""

import torch
from torch import Tensor

from graftseg.inference.sliding_window import Segment

MIN_WINDOWS = 8  # scans with fewer windows are predicted in float32, because checking takes longer than bfloat16 saves
CHECKED_WINDOWS = 4
"""Number of windows of a scan that are also predicted in float32. Scans with fewer than 32 windows have fewer."""
MAX_DIFFERENT = 0.001  # fraction of voxels whose labels may differ from float32


class Bf16RejectedError(Exception):
    """The labels of a scan in bfloat16 differ too much from those in float32."""


class Bf16Segment:
    """A network that computes in bfloat16. Heads and probabilities stay in float32.

    With ``is_checked``, some windows of each scan are also predicted in float32. If more than ``MAX_DIFFERENT`` of
    their voxels get another label, ``Bf16RejectedError`` is raised, and the scan must be predicted again, in float32.
    Each scan is decided separately, so that its label map does not depend on other scans.
    """

    def __init__(self, exact: Segment, device: torch.device, *, is_checked: bool) -> None:
        self.is_rejected = is_checked  # ``start`` sets this for each scan
        self._exact, self._device, self._is_checked = exact, device, is_checked
        self._checks, self._interval, self._next_check, self._windows, self._different = 0, 1, 0, 0, 0

    def start(self, windows: int) -> None:
        """Start a scan with this number of windows. Checked windows are distributed evenly."""
        self.is_rejected = self._is_checked and windows < MIN_WINDOWS
        self._checks = max(1, min(CHECKED_WINDOWS, windows // MIN_WINDOWS))
        self._interval = max(1, windows // self._checks)
        self._next_check, self._windows, self._different = self._interval // 2, 0, 0

    def reject(self) -> None:
        """Predict the rest of the scan in float32."""
        self.is_rejected = True

    def __call__(self, images: Tensor) -> Tensor:
        """Return the probabilities of a batch of windows."""
        if self.is_rejected:
            return self._exact(images)
        with torch.autocast(self._device.type, torch.bfloat16):
            probabilities = self._exact(images)
        self._windows += len(images)
        if self._is_checked and self._windows > self._next_check:
            self._next_check += self._interval
            labels, exact = probabilities.argmax(1), self._exact(images).argmax(1)
            self._different += int((labels != exact).sum())
            if self._different > MAX_DIFFERENT * self._checks * labels.numel():
                raise Bf16RejectedError
        return probabilities
