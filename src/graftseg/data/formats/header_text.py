"""The text headers of NRRD and MetaImage files: fields, checked numbers, and the location of the voxels."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.scan import AGAIN, TWO_OR_THREE_AXES, Floats, damaged, unsupported

MAX_HEADER_BYTES = 2**20
MAX_AXES = 4
MAX_NUMBER_LENGTH = 64  # characters of the longest number
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class Fields:
    """The fields of a header by lowercase name without spaces."""

    path: Path
    values: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: str) -> None:
        """Add a field. Refuse a field that is already present."""
        key = "".join(name.split()).lower()
        if key in self.values:
            raise self.invalid(key, "occurs twice")
        self.values[key] = value.strip()

    def text(self, name: str, default: str = "") -> str:
        """Return the value of a field, or the default if the field is missing."""
        return self.values.get(name, default)

    def first(self, names: Sequence[str]) -> str | None:
        """Return the first of several names that the header contains."""
        return next((name for name in names if name in self.values), None)

    def is_true(self, name: str, *, default: bool = False) -> bool:
        """Return the value of a field that is true or false."""
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false", "1", "0"):
            raise self.invalid(name, "is neither true nor false")
        return value in ("true", "1")

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """Return the value of a required field as ``count`` integers."""
        words = self.text(name).split(maxsplit=count)
        if len(words) != count or not all(map(_INTEGER.fullmatch, words)):
            expected = f"is not {_numbers(count, 'integer')}"
            raise self.invalid(name, expected if name in self.values else "is missing")
        return tuple(map(int, words))

    def integer(self, name: str, default: int) -> int:
        """Return the value of a field as an integer, or the default if the field is missing."""
        return self.integers(name, 1)[0] if name in self.values else default

    def floats(self, name: str, count: int) -> Floats:
        """Return the value of a field as ``count`` numbers, which may be NaN."""
        return self.parse_floats(name, self.text(name).split(maxsplit=count), count)

    def parse_floats(self, name: str, words: Sequence[str], count: int) -> Floats:
        """Return ``count`` words of a field as numbers, which may be NaN."""
        try:
            if len(words) != count or any(len(word) > MAX_NUMBER_LENGTH or "_" in word for word in words):
                raise ValueError
            values = np.array([float(word) for word in words])
        except ValueError:
            raise self.invalid(name, f"is not {_numbers(count, 'number')}") from None
        if np.isinf(values).any():
            raise self.invalid(name, "is infinite")
        return values

    def axes(self, name: str) -> int:
        """Return the number of axes in a field."""
        (count,) = self.integers(name, 1)
        if not 1 <= count <= MAX_AXES + 1:
            raise unsupported(self.path, f"the header lists {count} axes", TWO_OR_THREE_AXES)
        return count

    def sizes(self, name: str, count: int) -> tuple[int, ...]:
        """Return the number of voxels along each axis."""
        sizes = self.integers(name, count)
        if min(sizes) <= 0:
            raise unsupported(self.path, "the volume is empty", AGAIN)
        return sizes

    def invalid(self, name: str, finding: str) -> UserError:
        """Return the error for a field with an invalid value."""
        return UserError(Code.SCAN_HEADER, self.path, f"{name:.40} in the header {finding}", AGAIN)

    def data_file(self, name: str) -> Path:
        """Return the file with the voxels, which must be in the folder of its header."""
        # errors show only the file name, without a folder in Windows or POSIX spelling
        shown = f"{PureWindowsPath(name).name!a:.80}"
        # a name such as ./scan.raw is in the folder, too
        if Path(name).name != str(Path(name)) or "\0" in name:
            finding = f"the voxels are in {shown}, outside of the header's folder"
            raise unsupported(self.path, finding, "move the two files into one folder and correct the header")
        voxels = self.path.parent / name
        try:
            is_file = voxels.is_file()
        except OSError:  # a name that is too long
            is_file = False
        if not is_file:
            finding = f"the file with the voxels, {shown}, does not exist"
            raise UserError(Code.FILE_MISSING, self.path, finding, "copy that file too, or save the scan in one file")
        return voxels


@dataclass(frozen=True)
class VoxelFile:
    """The file with the voxels, and the position of the first voxel."""

    path: Path
    encoding: str  # raw, zlib, bzip2 or text
    dtype: np.dtype
    offset: int = 0  # end of the header
    lines: int = 0  # number of lines to skip after the header
    skip: int = 0  # bytes to skip after these lines; -1: the voxels are the last bytes of the file


@dataclass(frozen=True)
class Header:
    """A checked header. ``origin`` and ``directions`` (matrix columns) are in LPS coordinates."""

    voxels: VoxelFile
    sizes: tuple[int, ...]  # along two to four axes, the fastest axis first
    channels: int  # values per voxel
    channel_axis: int  # position of the channel axis in the file
    spacing: Floats  # in mm
    origin: Floats
    directions: Floats
    is_placed: bool  # whether the header contains the directions
    says_time: bool = False  # whether an axis is time

    @property
    def size(self) -> int:
        """The number of bytes of all voxels."""
        return math.prod(self.sizes) * self.channels * self.voxels.dtype.itemsize


def header_lines(head: bytes) -> list[tuple[str, int]]:
    """Split the beginning of a file into lines, each with the offset of the next line."""
    return [(line[0].decode("latin-1").strip(), line.end()) for line in _LINE.finditer(head)]


def unreadable_header(path: Path, reason: str) -> UserError:
    """Return the error for a file without a complete header."""
    return damaged(path, f"the header cannot be read ({reason})")


def _numbers(count: int, kind: str) -> str:
    return f"one {kind}" if count == 1 else f"{count} {kind}s"
