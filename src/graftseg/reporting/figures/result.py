"""The result of the command ``figure``."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FigureResult:
    """A written figure: its file, a caption, and the numbers it shows as a table."""

    path: Path
    caption: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
