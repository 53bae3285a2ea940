"""Summaries of label maps for tests: three labeled scans, and a plausible prediction that a test may change."""

from typing import Any

from graftseg.training.teacher_check import Point, ScanSummary


def centers(*foreground: float, outer: Point | None = (0.5, 0.5), inner: Point | None = (0.5, 0.5)) -> Any:
    """Return the center of the foreground and of two classes."""
    return foreground or None, outer, inner


LABELED = [
    ScanSummary((100, 40), (1.0, 1.0), centers(0.5, 0.5)),
    ScanSummary((120, 60), (1.0, 0.95), centers(0.4, 0.5)),
    ScanSummary((80, 50), (0.98, 1.0), centers(0.5, 0.6, inner=(0.6, 0.5))),
]
GOOD = ScanSummary((110, 45), (0.9, 1.0), centers(0.45, 0.5), 0.1)


def changed(**values: Any) -> ScanSummary:
    """Return the plausible prediction with other values."""
    return ScanSummary(**{**vars(GOOD), **values})
