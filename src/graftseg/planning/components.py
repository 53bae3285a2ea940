"""The rule for largest components: keep only the largest component of classes that are one piece in the labels."""

from collections.abc import Sequence

from graftseg.planning.choices import Choice, Choices
from graftseg.planning.facts import Facts, PieceCount
from graftseg.planning.frame import Frame

MIN_ONE_PIECE = 0.95
"""Minimum fraction of label maps or slices in which a class must be one piece."""


def component_choices(facts: Facts, frame: Frame, *, pseudo_labels: bool) -> Choices:
    """Choose the rule for label maps of complete scans and, if there are any, for pseudo-labels of patches."""
    choices = {"inference.largest_component": _rule(facts, facts.pieces, "label maps")}
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


def _counts(pieces: Sequence[PieceCount], value: int) -> str:
    return f"{pieces[value].single} of {pieces[value].total}" if value < len(pieces) else "0 of 0"
