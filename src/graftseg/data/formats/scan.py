"""What every format gives: voxels and where they lie; and what the formats share."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Geometry
from graftseg.data.folders import refuse_broken_link

LISTED = 4
"""So many guesses of one kind keep a line of their own."""


@dataclass(frozen=True)
class Guess:
    """What is open, in which file or folder, what was taken for it, and how to make it certain."""

    where: Path
    what: str
    taken: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.taken}); {self.remedy}"


def guess_lines(guesses: Iterable[Guess]) -> Iterator[str]:
    """A line for each guess; many of one kind are one line, under the first of them."""
    kinds: dict[tuple[str, str], list[Guess]] = {}
    for guess in guesses:
        kinds.setdefault((guess.what, guess.remedy), []).append(guess)
    for kind in kinds.values():
        if len(kind) <= LISTED:
            yield from map(str, kind)
        else:
            first = kind[0]
            yield f"{first.where} and {len(kind) - 1} more: {first.what} ({first.taken}); {first.remedy}"


MAX_BYTES = 16 * 2**30
"""The most a file may ask for, in bytes: far above any scan, far below what stops a machine."""

AGAIN = "copy or export the file again"


@dataclass(frozen=True)
class Scan:
    """Voxels ``(C, *space)``, or ``(*space)`` for a label map, where they lie, and what of that is guessed."""

    array: NDArray[Any]
    geometry: Geometry
    guesses: tuple[Guess, ...] = ()


@dataclass(frozen=True)
class Format:
    """How files of a format are read: the header alone, the scan ``(C, *space)``, and the same as a label map.

    The first two are told how many channels somebody has named, if anybody has. ``label`` is None for a format that no
    label map is read from.
    """

    geometry: Callable[[Path, int | None], Geometry]
    scan: Callable[[Path, int | None], Scan]
    label: Callable[[Path], Scan] | None


def lps_geometry(
    shape: tuple[int, ...],
    axes: NDArray[np.float64],
    spacing: NDArray[np.float64],
    origin: NDArray[np.float64],
    *,
    is_placed: bool = True,
) -> Geometry:
    """The geometry of a grid told to the left, the back and the head, as ITK and DICOM do, in millimetres.

    ``axes`` holds the directions of the array's two or three axes as columns. An affine counts to the right and to the
    front instead. ``is_placed``: whether the file told these directions, which are assumed else.
    """
    count = len(shape)
    matrix = np.eye(4)
    matrix[:count, :count] = axes * spacing
    matrix[:count, 3] = origin
    matrix[:2] *= -1
    affine = tuple(tuple(float(value) + 0.0 for value in row) for row in matrix)
    return Geometry(shape, affine, qform_code=int(is_placed), sform_code=int(is_placed))


def refuse_absent(path: Path) -> None:
    """Raise a UserError unless the path is a file."""
    refuse_broken_link(path)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "not a file" if path.exists() else "the file is missing"
        raise UserError(Code.SCAN_UNSUPPORTED, path, found, "check the path")


def refuse_bytes(path: Path, needed: int) -> None:
    """Raise a UserError where voxels need more memory than any scan does."""
    if needed > MAX_BYTES:
        raise UserError(
            Code.SCAN_TOO_LARGE, path, f"its header asks for {needed} bytes, above the limit of {MAX_BYTES}", AGAIN
        )


def optional(module: str, package: str, what: str) -> Any:
    """A module of an optional package, or one line that names the install command."""
    try:
        return import_module(module)
    except ImportError:
        raise UserError(Code.PACKAGE_MISSING, what, f"{package} is not installed", f"pip install {package}") from None


def words(error: BaseException, path: Path, most: int = 120) -> str:
    """What an error of another package about a file says, in one short line that does not tell the file's folder."""
    return " ".join(without_folder(str(error), path).split())[:most]


def without_folder(text: str, path: Path) -> str:
    """A text that calls a file, and others beside it, by their names alone, however it spells their folder."""
    folders = {str(folder) for folder in (path.parent, path.parent.absolute(), path.parent.resolve())}
    # quoted, a backslash stands twice
    spelled = {word.rstrip("/\\") for folder in folders for word in (folder, repr(folder)[1:-1])} - {"", "."}
    for folder in sorted(spelled, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(folder)}[/\\]+", "", text)
    return text
