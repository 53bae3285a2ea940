"""Recognize data sets of gray pictures that are stored with three colors."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from graftseg.core.errors import UserError
from graftseg.core.progress import in_parallel
from graftseg.core.types import Case
from graftseg.data.formats.pictures import SUFFIXES, has_equal_colors, stores_colors

MAX_REMEMBERED = 100_000


def are_gray(cases: Sequence[Case], named_channels: int | None) -> bool:
    """Return whether all training scans are gray pictures, and at least one of them is stored with three colors.

    Colors are kept if ``dataset.json`` names another number of channels than a case has files. Test scans are not read.
    A damaged picture does not count, because reading it is an error anyway.
    """
    training = [case for case in cases if case.split in ("labeled", "unlabeled")]
    images = [path for case in training for path in case.images]
    if not images or not all(path.name.lower().endswith(SUFFIXES) for path in images):
        return False
    if named_channels not in (None, len(training[0].images)):
        return False
    colored = [path for path in images if _stores_colors(path)]
    # a data set of colors is recognized by its first picture
    return bool(colored) and _is_gray(colored[0]) and all(in_parallel(_is_gray, colored[1:], "Reading pictures"))


def _stores_colors(path: Path) -> bool:
    try:
        return stores_colors(path)
    except UserError:
        return False


def _is_gray(path: Path) -> bool:
    try:
        stat = path.stat()
        return _is_gray_version(path, stat.st_size, stat.st_mtime_ns)
    except (OSError, UserError):
        return True


@lru_cache(MAX_REMEMBERED)
def _is_gray_version(path: Path, size: int, mtime_ns: int) -> bool:
    """Remember the result as long as the file does not change, because a command may read the folder several times."""
    return has_equal_colors(path)
