"""The scan that every reader returns, and the helpers that readers share."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.memory import free_memory
from graftseg.core.phrases import and_more
from graftseg.core.reading import read_bytes, read_start
from graftseg.core.types import Geometry
from graftseg.data.folders import refuse_broken_link

Floats = NDArray[np.float64]
MAX_BYTES = 16 * 2**30  # of the voxels of one file: above any real scan, within the memory of a large machine
FREE_EXPANSION, MAX_EXPANSION = 256 * 2**20, 1100  # decompressed bytes: always allowed, and per compressed byte
MAX_GUESS_LINES = 4  # more than ``MAX_GUESS_LINES`` guesses of one kind are summarized in one line
MAX_REASON = 120  # maximum length of the message of another package in an error
MAX_VOLUMES = 16  # more volumes are a time series, unless ``dataset.json`` names as many channels
USUAL_CHANNELS = 8  # more volumes than this in one file are reported as a guess, because they may be time points
VOLUMES_ARE_CHANNELS = -1  # passed as ``channel_count`` if the volumes of a file are known to be channels
KEEP_ONE = "if it is a time series, keep one volume"
NAME_CHANNELS = 'if the volumes are channels, name them in dataset.json, as in "modality": {"0": "T1", "1": "T2"}'
SAVE_VOLUME = "save the volume to segment, or save the channels of a case as CASE_0000, CASE_0001"
AGAIN = "copy or export the file again"
EMPTY = "the file is empty (0 bytes)"
TWO_OR_THREE_AXES = "save two or three spatial axes"
CHUNK = 2**20  # maximum number of bytes that are decompressed at once


@dataclass(frozen=True)
class Guess:
    """An assumption about a file (``what``), the assumed value (``assumed``), and how to avoid the guess."""

    where: Path
    what: str
    assumed: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.assumed}); {self.remedy}"


def guess_lines(guesses: Iterable[Guess]) -> Iterator[str]:
    """Yield a line for each guess, or one line for many guesses of the same kind."""
    groups: dict[tuple[str, str], list[Guess]] = {}
    for guess in guesses:
        groups.setdefault((guess.what, guess.remedy), []).append(guess)
    for group in groups.values():
        if len(group) <= MAX_GUESS_LINES:
            yield from map(str, group)
        else:
            first = group[0]
            yield f"{and_more(str(first.where), len(group))}: {first.what} ({first.assumed}); {first.remedy}"


@dataclass(frozen=True)
class Scan:
    """Voxels ``(C, *space)``, or ``(*space)`` for a label map, with their geometry and the guesses about the file."""

    array: NDArray[Any]
    geometry: Geometry
    guesses: tuple[Guess, ...] = ()


@dataclass(frozen=True)
class FourthAxis:
    """The volumes of a file according to its header. Many programs write steps of 0, 1 or seconds for channels."""

    volumes: int
    step: float  # distance between volumes
    says_time: bool = False  # the header contains a word or number that only occurs in time series
    in_seconds: bool = False

    def refuse_time(self, path: Path, channel_count: int | None) -> None:
        """Raise a UserError for a time series, unless ``channel_count`` says that the volumes are channels."""
        if self._is_certain(channel_count):
            return
        has_step = self.step > 0 and abs(self.step - 1) > 1e-6
        if self.volumes > MAX_VOLUMES or has_step or self.says_time:
            step = f" with a step of {self.step:g}" if has_step else ""
            raise unsupported(path, f"a time series of {self.volumes} volumes{step}", f"{SAVE_VOLUME}; {NAME_CHANNELS}")

    def guesses(self, path: Path, channel_count: int | None) -> tuple[Guess, ...]:
        """Return a guess if the volumes may be time points."""
        has_seconds = self.in_seconds and self.step > 0
        if self._is_certain(channel_count) or not (has_seconds or self.volumes > USUAL_CHANNELS):
            return ()
        apart = f", {self.step:g} s apart according to the header" if has_seconds else ""
        what = "the volumes of one file are assumed to be channels"
        return (Guess(path, what, f"{self.volumes} channels{apart}", f"{NAME_CHANNELS}; {KEEP_ONE}"),)

    def _is_certain(self, channel_count: int | None) -> bool:
        return self.volumes == 1 or channel_count in (self.volumes, VOLUMES_ARE_CHANNELS)


@dataclass(frozen=True)
class Format:
    """The readers of a file format. They take the number of channels that ``dataset.json`` names, or None."""

    geometry: Callable[[Path, int | None], Geometry]  # from the header
    scan: Callable[[Path, int | None], Scan]  # ``(C, *space)``
    label: Callable[[Path], Scan] | None  # ``(1, *space)``, None if the format is not supported for label maps


def lps_geometry(
    shape: tuple[int, ...], axes: Floats, spacing: Floats, origin: Floats, *, is_placed: bool = True
) -> Geometry:
    """Return the geometry of an LPS grid in mm, as in ITK and DICOM. The columns of ``axes`` are its directions."""
    count = len(shape)
    matrix = np.eye(4)
    matrix[:count, :count] = axes * spacing
    matrix[:count, 3] = origin
    matrix[:2] *= -1
    affine = tuple(tuple(float(value) + 0.0 for value in row) for row in matrix)
    return Geometry(shape, affine, qform_code=int(is_placed), sform_code=int(is_placed))


def refuse_absent(path: Path) -> None:
    """Raise a UserError unless the path is a file with content."""
    refuse_broken_link(path)
    if not path.exists():
        raise UserError(Code.FILE_MISSING, path, "the file does not exist", "check the path")
    if not path.is_file():
        raise UserError(Code.NOT_A_SCAN, path, "a folder" if path.is_dir() else "not a file", "check the path")
    if path.stat().st_size == 0:
        raise damaged(path, EMPTY)


def refuse_bytes(path: Path, needed: int, available: int | None = None) -> None:
    """Raise a UserError if the voxels need more bytes than ``MAX_BYTES`` or than the file can contain."""
    if needed > MAX_BYTES:
        finding = f"the header asks for {needed} bytes, the limit is {MAX_BYTES}"
        raise UserError(Code.SCAN_TOO_LARGE, path, finding, AGAIN)
    if available is not None and needed > available:
        raise damaged(path, f"truncated: the header asks for {needed} bytes, but the file has at most {available}")


def refuse_expansion(path: Path, needed: int, stored: int, free: int = FREE_EXPANSION) -> None:
    """Raise a UserError if compressed voxels expand far more than those of real scans, to more than ``free`` bytes."""
    if needed > max(free, MAX_EXPANSION * stored):
        finding = f"the header asks for {needed} bytes, but the compressed voxels have only {stored}"
        raise UserError(Code.SCAN_TOO_LARGE, path, finding, AGAIN)


def refuse_memory(path: Path, needed: int) -> None:
    """Raise a UserError if the voxels do not fit into the free memory."""
    if needed > (free := free_memory(torch.device("cpu"))):
        finding = f"the voxels need {needed / 2**30:.1f} GiB of memory, but only {free / 2**30:.1f} GiB are free"
        raise UserError(Code.OUT_OF_MEMORY, path, finding, "close other programs or use a larger machine")


def damaged(path: Path, finding: str) -> UserError:
    """Return the error for a file with invalid content."""
    return UserError(Code.SCAN_DAMAGED, path, finding, AGAIN)


def unsupported(path: Path, finding: str, remedy: str) -> UserError:
    """Return the error for a valid file that is not supported."""
    return UserError(Code.SCAN_UNSUPPORTED, path, finding, remedy)


def unreadable(path: Path, error: OSError) -> UserError:
    """Return the error for a file that the operating system cannot read."""
    finding = f"cannot be read ({error.strerror or error})"
    return UserError(Code.READ_FAILED, path, finding, "check the file and its permissions")


def read_head(path: Path, count: int) -> bytes:
    """Read the first bytes of a file."""
    try:
        return read_start(path, count)
    except OSError as error:
        raise unreadable(path, error) from None


def read_content(path: Path, name: str, signature: bytes) -> bytes:
    """Read a file. Raise a UserError unless it begins with the signature of the format ``name``."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise unreadable(path, error) from None
    if not content.startswith(signature):
        remedy = "give the file the suffix of its format, or copy or export it again"
        raise UserError(Code.NOT_A_SCAN, path, f"not a {name} file", remedy)
    return content


def short_reason(error: BaseException, path: Path) -> str:
    """Return the message of an error from another package in one short line, without the folder of the file."""
    return " ".join(without_folder(str(error), path).split())[:MAX_REASON]


def without_folder(text: str, path: Path) -> str:
    """Remove the folder of a file from a text, in all spellings: relative, absolute and resolved."""
    folders = {str(folder) for folder in (path.parent, path.parent.absolute(), path.parent.resolve())}
    # a message may quote the path with repr, which doubles backslashes
    spellings = {word.rstrip("/\\") for folder in folders for word in (folder, repr(folder)[1:-1])} - {"", "."}
    for folder in sorted(spellings, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(folder)}[/\\]+", "", text)
    return text


def decompressed(decompressor: Any, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield parts of at most ``CHUNK`` bytes from a new decompressor. Raise EOFError if the content is truncated."""
    for chunk in chunks:
        while not decompressor.eof and (part := decompressor.decompress(chunk, CHUNK)):
            yield part
            chunk = getattr(decompressor, "unconsumed_tail", b"")  # bz2 and lzma keep the rest themselves
        if decompressor.eof:
            return
    raise EOFError("truncated")


def decompress_up_to(limit: int, decompressor: Any, chunks: Iterable[bytes]) -> bytearray:
    """Decompress at least one byte more than ``limit``, or all content. Raise EOFError if the content is truncated."""
    content = bytearray()
    for part in decompressed(decompressor, chunks):
        content += part
        if len(content) > limit:
            break
    return content
