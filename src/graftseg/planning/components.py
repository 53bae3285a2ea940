"""The connected components to keep of each class, from number and volume of its pieces in the labels."""

from collections.abc import Sequence
from math import prod

from graftseg.data.fingerprint import CaseFingerprint
from graftseg.planning.choices import Choice, Choices
from graftseg.planning.facts import Facts, PieceCount
from graftseg.planning.frame import Frame

MIN_ONE_PIECE = 0.95
"""Minimum fraction of label maps or slices in which a class must be one piece."""
MIN_LABEL_MAPS = 3
"""Minimum number of label maps with a class to keep several components, or to remove small components."""
MAX_SIZE_RATIO = 5.0
"""Maximum ratio of the largest to the smallest piece of a class of which small components are removed.

The pieces of lesions differ more, so that a new lesion may be smaller than all labeled ones.
"""
MIN_PART = 0.5
"""Volume of the smallest component to keep, relative to the smallest piece in the labels."""
MIN_OCCASIONAL_MAPS, MIN_OCCASIONAL_PART = 2, 0.25
"""Minimum number of label maps with an occasional class to remove its small components, and their relative volume.

An occasional class is missing in some label maps, so a wrong component in a scan without the class costs more than a
small component that is missed. The size of its pieces may vary.
"""


def component_choices(facts: Facts, frame: Frame, *, pseudo_labels: bool) -> Choices:
    """Choose the components to keep in label maps and, if ``pseudo_labels`` is true, in pseudo-labels."""
    choices: Choices = {"inference.largest_component": _largest_component(facts, facts.pieces, "label maps")}
    choices |= _several_components(facts)
    choices |= _volumes(facts, choices)
    if pseudo_labels:
        pieces, where = (facts.slice_pieces, "slices") if frame.is_stacked else (facts.pieces, "label maps")
        choices["stages.1.settings.largest_component"] = _largest_component(facts, pieces, where)
    return choices


def _largest_component(facts: Facts, pieces: Sequence[PieceCount], where: str) -> Choice:
    """Choose the classes of which only the largest component is kept. ``pieces`` were counted in ``where``."""
    counts = dict(zip(range(1, len(facts.classes)), pieces[1:], strict=False))
    single = [value for value, count in counts.items() if count.share >= MIN_ONE_PIECE]
    others = [
        f"{facts.classes[value]} is one piece in {count.single} of {count.total} {where}"
        for value, count in counts.items()
        if value not in single
    ]
    if not others:
        return Choice(True, f"each class is one piece in nearly all {where}, so small components are errors")
    examples = "; ".join(others[:3]) + ("; ..." if len(others) > 3 else "")
    if not single:
        return Choice(False, f"off, because classes often have several pieces ({examples})")
    return Choice(single, f"only these classes, because other classes often have several pieces ({examples})")


def _several_components(facts: Facts) -> Choices:
    """Keep N components of each class that has exactly N large pieces in all label maps, if N is above 1."""
    choices = {}
    for value, (name, pieces) in enumerate(zip(facts.classes, facts.pieces, strict=False)):
        number = max(pieces.large, default=0)
        if number > 1 and len(pieces.large) == 1 and pieces.total >= MIN_LABEL_MAPS:
            reason = f"{name} is {number} large pieces in all {pieces.total} label maps, so other components are errors"
            choices[f"inference.keep_components.{value}"] = Choice(number, reason)
    return choices


def _volumes(facts: Facts, choices: Choices) -> Choices:
    """Choose the smallest volume of a component for occasional classes, and for classes with pieces of similar size.

    Classes of which a number of components is kept in ``choices`` are left out, unless they are occasional: in a scan
    without the class, the largest component is an error, too.
    """
    found: Choices = {}
    largest = choices["inference.largest_component"].value
    for value, name in enumerate(facts.classes):
        volumes = _piece_volumes(facts.fingerprint.of("labeled"), value)
        counted = largest is True or (largest and value in largest) or f"inference.keep_components.{value}" in choices
        if not counted and len(volumes) >= MIN_LABEL_MAPS and _are_similar(volumes):
            reason = f"half of the smallest piece of {name} in the label maps, so smaller components are errors"
            part = MIN_PART
        elif value in facts.occasional_classes and len(volumes) >= MIN_OCCASIONAL_MAPS:
            reason = f"a quarter of the smallest piece of {name}, which is missing in some label maps and may be "
            reason += "missing in a scan"
            part = MIN_OCCASIONAL_PART
        else:
            continue
        smallest = min(map(min, volumes))
        found[f"inference.min_component_ml.{value}"] = Choice(float(f"{part * smallest:.2g}"), reason)
    return found


def _are_similar(volumes: Sequence[Sequence[float]]) -> bool:
    return max(map(max, volumes)) <= MAX_SIZE_RATIO * min(map(min, volumes))


def _piece_volumes(cases: Sequence[CaseFingerprint], value: int) -> list[list[float]]:
    """Return the volumes in mL of the pieces of a class in each label map with the class.

    Return none for 2-D scans, or if a label map has so many pieces that their sizes are not stored.
    """
    with_class = [case for case in cases if value in case.pieces and len(case.shape) == 3]
    if any(len(case.pieces[value].sizes) < case.pieces[value].count for case in with_class):
        return []
    return [[size * prod(case.spacing) / 1000 for size in case.pieces[value].sizes] for case in with_class]
