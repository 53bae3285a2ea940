"""Intensity normalization of scans, separately for each channel."""

from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from graftseg.core.settings import Settings, without_unused

Floats = npt.NDArray[np.float32]
Intensity = Annotated[float, Field(ge=-1e30, le=1e30)]  # all differences are finite in float32


class IntensitySettings(Settings):
    """Intensity normalization.

    ============= ====================================================================================
    zscore        mean 0 and standard deviation 1 over all voxels of the channel
    minmax        scaled from the range of the channel to [0, 1]
    percentile    clipped to the percentiles ``low`` and ``high`` of the channel, then scaled to [0, 1]
    window        clipped to the values ``low`` and ``high`` (HU in CT), then scaled to [0, 1]
    window-zscore clipped like window, then ``(value - mean) / std`` with fixed ``mean`` and ``std``
    none          unchanged
    ============= ====================================================================================
    """

    rule: Literal["zscore", "minmax", "percentile", "window", "window-zscore", "none"] = Field(
        default="zscore", description="Intensity normalization."
    )
    low: Intensity = Field(default=0.5, description="Lower bound: a percentile or, for the window rules, a value.")
    high: Intensity = Field(default=99.5, description="Upper bound: a percentile or, for the window rules, a value.")
    mean: Intensity | None = Field(default=None, description="Mean that window-zscore subtracts.")
    std: float | None = Field(
        default=None, gt=0, le=1e30, description="Standard deviation that window-zscore divides by."
    )

    @model_serializer(mode="wrap")
    def _without_unused(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unused(self, handler, "mean", "std")

    @model_validator(mode="after")
    def _check_consistency(self) -> "IntensitySettings":
        numbers = [number for number in (self.mean, self.std) if number is not None]
        if self.rule == "window-zscore" and len(numbers) < 2:
            raise ValueError("the rule window-zscore needs mean and std")
        if self.rule != "window-zscore" and numbers:
            raise ValueError(f"the rule {self.rule} does not use mean and std: remove them")
        if self.rule not in ("percentile", "window", "window-zscore"):
            if (self.low, self.high) != (0.5, 99.5):
                raise ValueError(f"the rule {self.rule} does not use low and high: remove them")
            return self
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.rule != "percentile" and not {"low", "high"} <= self.model_fields_set:
            raise ValueError(f"the rule {self.rule} needs both low and high")
        if self.rule == "percentile" and not (self.low >= 0 and self.high <= 100):
            raise ValueError(f"percentiles must be in 0 to 100, not {self.low:g} to {self.high:g}")
        return self


def normalize(array: npt.NDArray[np.generic], settings: IntensitySettings) -> Floats:
    """Normalize ``(C, *space)`` to float32. The rules zscore, minmax and percentile set a constant channel to 0."""
    return np.stack([_normalize_channel(channel.astype(np.float32), settings) for channel in array])


def _normalize_channel(channel: Floats, settings: IntensitySettings) -> Floats:
    if settings.rule == "none":
        return channel
    if settings.rule == "window":
        return _to_unit(channel, settings.low, settings.high)
    if settings.mean is not None and settings.std is not None:
        return (channel.clip(settings.low, settings.high) - np.float32(settings.mean)) / np.float32(settings.std)
    lowest, highest = float(channel.min()), float(channel.max())
    if lowest == highest:
        return np.zeros_like(channel)
    if settings.rule == "zscore":
        centered = channel - np.float32(channel.mean(dtype=np.float64))
        return centered / np.float32(np.sqrt(np.square(centered).mean(dtype=np.float64)))
    if settings.rule == "percentile":
        low, high = (float(bound) for bound in np.percentile(channel, (settings.low, settings.high)))
        # if both percentiles are equal (nearly all background), use the range of the channel
        if low < high:
            return _to_unit(channel, low, high)
    return _to_unit(channel, lowest, highest)


def _to_unit(channel: Floats, low: float, high: float) -> Floats:
    # clip after scaling, because the division may round to a value above 1
    return ((channel - np.float32(low)) / np.float32(high - low)).clip(0, 1)
