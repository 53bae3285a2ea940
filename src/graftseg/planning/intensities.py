"""How intensities are brought to scale: by what the scanner means with them."""

import re

import numpy as np
import numpy.typing as npt

from graftseg.planning.choices import Choice, Choices
from graftseg.planning.facts import Facts, Foreground

LOWEST_CT, MOST = -400.0, 5000.0
"""Hounsfield units: something in a CT scan is nearly air, and hardly anything lies above metal."""
LARGE = 0.9
"""Share of scans that must look like CT."""


def intensity_choices(facts: Facts) -> Choices:
    """The rule for intensities, with its reason."""
    ct = ct_reason(facts)
    if ct is None or facts.foreground is None or not facts.foreground.std:
        return {"data.intensity.rule": Choice("zscore", _without_units(facts))}
    return _window(facts.foreground, ct)


def ct_reason(facts: Facts) -> str | None:
    """Why the scans are taken for CT, or None where they are not: by the names of channels, else by their values."""
    if facts.channel_names:
        said = [bool(re.search(r"(?<![a-z])ct(?![a-z])", name.lower())) for name in facts.channel_names]
        return f"dataset.json calls the channel {facts.channel_names[0]}" if all(said) else None
    if _look_like_ct(facts).mean() < LARGE:
        return None
    lowest = [[channel[0] for channel in case.percentiles] for case in facts.fingerprint.training]
    return f"values reach down to {np.median(lowest):.0f}, as Hounsfield units do"


def intensity_lines(facts: Facts, choices: Choices) -> list[str]:
    """The rule that was taken and why, for people; and how many scans are not like the others, where most are CT."""
    rule, alike = choices["data.intensity.rule"], _look_like_ct(facts)
    lines = [f"Intensities: {rule.value}, {rule.reason}."]
    if 0.5 < alike.mean() < 1:
        lines.append(
            f"Warning: {alike.size - alike.sum()} of {alike.size} scans do not have the values of CT that the others "
            "have; `graftseg check` may tell why."
        )
    return lines


def _look_like_ct(facts: Facts) -> npt.NDArray[np.bool_]:
    """Which of the scans have the values of CT, in every channel."""
    lowest, highest = (
        np.array([[channel[end] for channel in case.percentiles] for case in facts.fingerprint.training])
        for end in (0, -1)
    )
    alike = (lowest <= LOWEST_CT) & (lowest >= -MOST) & (highest > LOWEST_CT) & (highest <= MOST)
    return np.asarray(alike.all(axis=1), dtype=np.bool_)


def _window(foreground: Foreground, why: str) -> Choices:
    """Between two percentiles of the labeled voxels, the lower one at 0.

    Convolutions put zeros around a scan, as cropping does. With the mean of the labeled voxels at 0, as is usual, these
    look like an organ, and a network that was trained for a short time may find one along the edges of scans.
    """
    low, high = float(np.floor(foreground.low)), float(np.ceil(foreground.high))
    if low == high:
        low, high = low - 1, high + 1
    return {
        "data.intensity.rule": Choice("window-zscore", f"taken for CT ({why}): a value means the same in every scan"),
        "data.intensity.low": Choice(low, "half a percent of the labeled voxels lies below"),
        "data.intensity.high": Choice(high, "half a percent of the labeled voxels lies above"),
        "data.intensity.mean": Choice(low, "the lower bound, so that air is 0, as is all beyond the edge of a scan"),
        "data.intensity.std": Choice(
            float(f"{foreground.std:.4g}"), "deviation of the labeled voxels within the bounds"
        ),
    }


def _without_units(facts: Facts) -> str:
    if facts.channel_names:
        named = ", ".join(facts.channel_names)
        return f"each scan by itself to mean 0 and deviation 1: values of {named} have no fixed unit"
    medians = [case.percentiles[0][-1] for case in facts.fingerprint.training]
    return (
        "each scan by itself to mean 0 and deviation 1: values have no unit that scans share "
        f"(their upper ends lie from {min(medians):.3g} to {max(medians):.3g})"
    )
