"""The normalization of intensities: the same window for all CT scans, z-scores per scan for scans without a unit."""

import re

import numpy as np
import numpy.typing as npt

from graftseg.planning.choices import Choice, Choices
from graftseg.planning.facts import Facts, Foreground

MAX_AIR, MAX_CT = -400.0, 5000.0
"""Limits in Hounsfield units. In CT, the lowest values are air, at most ``MAX_AIR``, and the highest values are above
``MAX_AIR``. No value is farther from zero than ``MAX_CT``."""
MIN_CT_FRACTION = 0.9
"""Minimum fraction of scans whose values must look like CT to treat all scans as CT."""


def intensity_choices(facts: Facts) -> Choices:
    """Choose the normalization of intensities."""
    reason = ct_reason(facts)
    if reason is None or facts.foreground is None or not facts.foreground.std:
        return {"data.intensity.rule": Choice("zscore", _zscore_reason(facts))}
    return _window(facts.foreground, reason)


def ct_reason(facts: Facts) -> str | None:
    """Return why the scans seem to be CT, or None. Voxel values are used only if there are no channel names."""
    if facts.channel_names:
        are_ct = [bool(re.search(r"(?<![a-z])ct(?![a-z])", name.lower())) for name in facts.channel_names]
        return f"dataset.json calls the channel {facts.channel_names[0]}" if all(are_ct) else None
    if _look_like_ct(facts).mean() < MIN_CT_FRACTION:
        return None
    lowest = [[channel[0] for channel in case.percentiles] for case in facts.fingerprint.training]
    return f"values reach down to {np.median(lowest):.0f}, as Hounsfield units do"


def intensity_lines(facts: Facts, choices: Choices) -> list[str]:
    """Return the rule and its reason, and a warning if most scans look like CT, but not all."""
    rule, are_ct = choices["data.intensity.rule"], _look_like_ct(facts)
    lines = [f"Intensities: {rule.value}, {rule.reason}."]
    if 0.5 < are_ct.mean() < 1:
        lines.append(
            f"Warning: {are_ct.size - are_ct.sum()} of {are_ct.size} scans do not look like CT, but the others do. "
            "`graftseg check` may show why."
        )
    return lines


def _look_like_ct(facts: Facts) -> npt.NDArray[np.bool_]:
    """Return which scans look like CT in every channel."""
    lowest, highest = (
        np.array([[channel[end] for channel in case.percentiles] for case in facts.fingerprint.training])
        for end in (0, -1)
    )
    is_ct = (lowest <= MAX_AIR) & (lowest >= -MAX_CT) & (highest > MAX_AIR) & (highest <= MAX_CT)
    return np.asarray(is_ct.all(axis=1), dtype=np.bool_)


def _window(foreground: Foreground, ct_reason: str) -> Choices:
    """Choose a window between two percentiles of the labeled voxels, and map its lower bound to 0.

    Convolutions and cropping pad scans with zeros, which should look like air. If 0 were the mean of the labeled
    voxels, as is common, the padding would look like an organ, and a network could find organs at the edges of scans.
    """
    low, high = float(np.floor(foreground.low)), float(np.ceil(foreground.high))
    if low == high:
        low, high = low - 1, high + 1
    std = float(f"{foreground.std:.4g}")
    return {
        "data.intensity.rule": Choice("window-zscore", f"CT ({ct_reason}), so a value means the same in every scan"),
        "data.intensity.low": Choice(low, "0.5th percentile of the labeled voxels"),
        "data.intensity.high": Choice(high, "99.5th percentile of the labeled voxels"),
        "data.intensity.mean": Choice(low, "the lower bound, so that air is 0 like the padding around a scan"),
        "data.intensity.std": Choice(std, "standard deviation of the labeled voxels after clipping to the bounds"),
    }


def _zscore_reason(facts: Facts) -> str:
    cause = f"{', '.join(facts.channel_names)} values have no fixed unit"
    if not facts.channel_names:
        largest = [case.percentiles[0][-1] for case in facts.fingerprint.training]
        span = f"range from {min(largest):.3g} to {max(largest):.3g}"
        cause = f"the scans have no common unit (their largest values {span})"
    return f"each scan is scaled to mean 0 and standard deviation 1, because {cause}"
