"""From the intensities of a scanner to those a network sees, each channel by itself."""

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from graftseg.settings import Settings

Floats = npt.NDArray[np.float32]


class IntensitySettings(Settings):
    """How intensities are brought to a common scale.

    ========== ===================================================================================
    zscore     mean 0 and standard deviation 1 over the whole volume
    minmax     the volume's range to [0, 1]
    percentile clipped to the percentiles ``low`` and ``high`` of the volume, then to [0, 1]
    window     clipped to the values ``low`` and ``high`` (Hounsfield units in CT), then to [0, 1]
    none       left as they are
    ========== ===================================================================================
    """

    rule: Literal["zscore", "minmax", "percentile", "window", "none"] = Field(
        default="zscore", description="How intensities are brought to a common scale."
    )
    low: float = Field(default=0.5, description="Lower bound: a percentile, or a value where the rule is window.")
    high: float = Field(default=99.5, description="Upper bound: a percentile, or a value where the rule is window.")

    @model_validator(mode="after")
    def _agree(self) -> "IntensitySettings":
        if self.rule not in ("percentile", "window"):
            if (self.low, self.high) != (0.5, 99.5):
                raise ValueError(f"the rule {self.rule} has no bounds: drop low and high")
            return self
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.rule == "window" and not {"low", "high"} <= self.model_fields_set:
            raise ValueError("the rule window needs both low and high")
        if self.rule == "percentile" and not (self.low >= 0 and self.high <= 100):
            raise ValueError(f"percentiles lie in 0 to 100, not {self.low:g} to {self.high:g}")
        return self


def normalise(array: npt.NDArray[np.generic], settings: IntensitySettings) -> Floats:
    """Bring ``(C, *space)`` to a common scale as float32; a constant channel becomes zeros."""
    channels = [_normalise_channel(channel.astype(np.float32), settings) for channel in array]
    return np.stack(channels)


def _normalise_channel(channel: Floats, settings: IntensitySettings) -> Floats:
    if settings.rule == "none":
        return channel
    if settings.rule == "window":
        return _to_unit(channel, settings.low, settings.high)
    lowest, highest = float(channel.min()), float(channel.max())
    if lowest == highest:
        return np.zeros_like(channel)
    if settings.rule == "zscore":
        return _standardise(channel)
    if settings.rule == "percentile":
        low, high = (float(bound) for bound in np.percentile(channel, (settings.low, settings.high)))
        # Both percentiles coincide where nearly all is background; the whole range still shows the rest.
        if low < high:
            return _to_unit(channel, low, high)
    return _to_unit(channel, lowest, highest)


def _standardise(channel: Floats) -> Floats:
    centred = channel - np.float32(channel.mean(dtype=np.float64))
    deviation = np.sqrt(np.square(centred).mean(dtype=np.float64))
    return centred / np.float32(deviation)


def _to_unit(channel: Floats, low: float, high: float) -> Floats:
    # Clipped after scaling, since the division may round past 1.
    return ((channel - np.float32(low)) / np.float32(high - low)).clip(0, 1)
