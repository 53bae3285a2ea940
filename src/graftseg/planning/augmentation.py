"""The augmentation of a plan. Left and right are mirrored only if no class is on one side of the body."""

import re

import numpy as np

from graftseg.data.checks.labels import MIN_GAP
from graftseg.planning.choices import Choice, Choices
from graftseg.planning.facts import Facts
from graftseg.planning.frame import Frame

SIDED = re.compile(
    r"(?i:left|right|links|rechts|gauche|droit)"
    r"|(?<![A-Za-z])(?i:l|r|lt|rt|lh|rh|lv|rv)(?![a-z])(?=[A-Z][a-z]|[^A-Za-z]|$)"
    r"|(?<=[a-z])[LR](?![A-Za-z])"
)
"""Names of classes on one side of the body, such as ``kidney_left``, ``LKidney``, ``kidneyR`` or ``Niere links``."""
MAX_OFF_CENTER = 0.1
"""Maximum distance of the mean position of a centered class from the middle, as a share of the width of a scan."""
MIN_SAME_ORDER = 0.9
"""Two classes have a fixed order if one is left of the other in more than this fraction of the scans with both."""


def augmentation_choices(facts: Facts, frame: Frame) -> Choices:
    """Choose the deformations and the intensity changes of training patches."""
    thickness = frame.spacing[2] / frame.spacing[0] if frame.dimensions == 3 else 1.0
    mirror, reason = mirrored_axes(facts, frame)
    off = Choice(0.0, "off, because warp rotates and mirrors")
    return {
        "batches.augment.rotate_flip": off,
        "batches.augment.rotate": off,
        "batches.warp.mirror": Choice(list(mirror), reason),
        "batches.warp.thickness": Choice(
            float(f"{thickness:.4g}"), "spacing along the last axis relative to the first"
        ),
        "batches.intensity.noise": Choice(0.1, "probability, as in nnU-Net"),
    }


def mirrored_axes(facts: Facts, frame: Frame) -> tuple[tuple[int, ...], str]:
    """Return the axes along which patches are mirrored, and the reason: none, or the axis from left to right."""
    if frame.orientation is None:
        return (), "off, because the direction of the axes of 2-D scans is unknown"
    axis = frame.orientation.index("R")
    if axis >= frame.dimensions:
        return (), "off, because no axis of a slice runs from left to right"
    if sided := [name for name in facts.classes[1:] if SIDED.search(name)]:
        return (), f"off, because {sided[0]} is on one side of the body"
    if pair := _ordered_pair(facts):
        return (), f"off, because {pair[0]} and {pair[1]} nearly always have the same order from left to right"
    if name := _off_center(facts):
        return (), f"off, because {name} is on one side of the scans on average"
    return (axis,), "left and right, because no class belongs to one side"


def _off_center(facts: Facts) -> str | None:
    """Return the name of a class whose mean position is not in the middle, or None."""
    for value in range(1, len(facts.classes)):
        positions = [centers[value] for centers in facts.left_right if value in centers]
        if positions and abs(np.mean(positions) - 0.5) > MAX_OFF_CENTER:
            return facts.classes[value]
    return None


def _ordered_pair(facts: Facts) -> tuple[str, str] | None:
    """Return the names of two classes that have the same order in nearly all scans, or None."""
    for first in range(1, len(facts.classes)):
        for second in range(first + 1, len(facts.classes)):
            gaps = np.array([c[second] - c[first] for c in facts.left_right if first in c and second in c])
            if len(gaps) and max((gaps > MIN_GAP).mean(), (gaps < -MIN_GAP).mean()) > MIN_SAME_ORDER:
                return facts.classes[first], facts.classes[second]
    return None
