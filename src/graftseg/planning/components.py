"""The rules for components: keep as many components of a class as it has large pieces in the labels."""

from collections.abc import Sequence

from graftseg.planning.choices import Choice, Choices
from graftseg.planning.facts import Facts, PieceCount
from graftseg.planning.frame import Frame

MIN_ONE_PIECE = 0.95
"""Minimum fraction of label maps or slices in which a class must be one piece."""

MIN_LABEL_MAPS = 3
"""Minimum number of label maps from which a number of pieces above 1 is planned."""


def component_choices(facts: Facts, frame: Frame, *, pseudo_labels: bool) -> Choices:
    """Choose the rule for label maps of complete scans and, with ``pseudo_labels``, for pseudo-labels of patches."""
    choices = {"inference.largest_component": _rule(facts, facts.pieces, "label maps")} | _several_pieces(facts)
    if pseudo_labels:
        seen, where = (facts.slice_pieces, "slices") if frame.is_stacked else (facts.pieces, "label maps")
        choices["stages.1.settings.largest_component"] = _rule(facts, seen, where)
    return choices


def _rule(facts: Facts, pieces: Sequence[PieceCount], where: str) -> Choice:
    classes = range(1, len(facts.classes))
    single = [value for value in classes if value < len(pieces) and pieces[value].share >= MIN_ONE_PIECE]
    several = [value for value in classes if value not in single]
    counts = [f"{facts.classes[value]} is one piece in {_counts(pieces, value)} {where}" for value in several]
    if not several:
        return Choice(True, f"each class is one piece in nearly all {where}, so small components are errors")
    examples = "; ".join(counts[:3]) + ("; ..." if len(counts) > 3 else "")
    if not single:
        return Choice(False, f"off, because classes often have several pieces ({examples})")
    return Choice(single, f"only these classes, because other classes often have several pieces ({examples})")


def _several_pieces(facts: Facts) -> Choices:
    """Keep N components of each class that consists of exactly N large pieces in all label maps, N being above 1."""
    choices = {}
    for value, name in enumerate(facts.classes):
        pieces = facts.pieces[value] if value < len(facts.pieces) else PieceCount()
        number = max(pieces.large, default=0)
        if number > 1 and len(pieces.large) == 1 and pieces.total >= MIN_LABEL_MAPS:
            reason = f"{name} is {number} large pieces in all {pieces.total} label maps, so other components are errors"
            choices[f"inference.keep_components.{value}"] = Choice(number, reason)
    return choices


def _counts(pieces: Sequence[PieceCount], value: int) -> str:
    return f"{pieces[value].single} of {pieces[value].total}" if value < len(pieces) else "0 of 0"
