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
"""Minimum number of label maps with a class to keep more than one component, or to remove small components."""
MAX_SIZE_RATIO = 5.0
"""Maximum ratio of the largest to the smallest piece of a class of which small components are removed.

The pieces of lesions differ more, so that a new lesion may be smaller than all labeled ones.
"""
MIN_PART = 0.5
"""Volume of the smallest component to keep, relative to the smallest piece in the labels."""


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
    """Choose the smallest volume of a component for classes with several pieces of similar size.

    Classes of which a number of components is kept in ``choices`` are left out.
    """
    found: Choices = {}
    largest = choices["inference.largest_component"].value
    for value, name in enumerate(facts.classes):
        counted = largest is True or (largest and value in largest) or f"inference.keep_components.{value}" in choices
        volumes = _piece_volumes(facts.fingerprint.of("labeled"), value)
        if counted or not volumes or max(volumes) > MAX_SIZE_RATIO * min(volumes):
            continue
        reason = f"half of the smallest piece of {name} in the label maps, so smaller components are errors"
        found[f"inference.min_component_ml.{value}"] = Choice(float(f"{MIN_PART * min(volumes):.2g}"), reason)
    return found


def _piece_volumes(cases: Sequence[CaseFingerprint], value: int) -> list[float]:
    """Return the volumes in mL of all pieces of a class. Return none for 2-D scans, few label maps or many pieces."""
    with_class = [case for case in cases if value in case.pieces and len(case.shape) == 3]
    if len(with_class) < MIN_LABEL_MAPS or any(
        len(case.pieces[value].sizes) < case.pieces[value].count for case in with_class
    ):
        return []
    return [size * prod(case.spacing) / 1000 for case in with_class for size in case.pieces[value].sizes]
