"""The case lists of benchmarks, from the data or from the publications, and h5 files with an image and its labels."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.packages import import_optional
from graftseg.core.reading import read_start
from graftseg.core.types import Case, Geometry
from graftseg.data.folders import with_children
from graftseg.data.formats.scan import refuse_absent, refuse_bytes, short_reason
from graftseg.data.scans import Scan, class_numbers, refuse_non_finite

MAX_BYTES = 2**24  # maximum size of a list
PUBLISHED = Path(__file__).parent / "lists"  # folder of the published lists
AGAIN = "copy or download the file again"


def read_list(path: Path) -> list[str]:
    """Return the entries of a list, one per line, without empty lines and without a byte order mark."""
    remedy = "restore the file, or remove it to use the published list"
    try:
        lines = read_start(path, MAX_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(Code.READ_FAILED, path, f"the list cannot be read ({error})", remedy) from None
    entries = [line.strip() for line in lines if line.strip()]
    if not entries:
        raise UserError(Code.BENCHMARK_MISMATCH, path, "the list is empty", remedy)
    return entries


def entries_of(root: Path, published: str, *names: str) -> tuple[Path, list[str]]:
    """Return path and entries of the first list of ``names`` in a folder or its subfolders, else of ``published``."""
    path = PUBLISHED / published
    # a broken link counts as existing, so that reading it fails instead of using the published list
    paths = [folder / name for name in names for folder in with_children(root)]
    existing = [path for path in paths if path.is_file() or path.is_symlink()]
    if existing:
        path, same_name = existing[0], [other for other in existing if other.name == existing[0].name]
        if path.parent != root and len(same_name) > 1:
            finding = f"two lists are named {path.name}, in {path.parent.name} and {same_name[1].parent.name}"
            raise UserError(Code.BENCHMARK_MISMATCH, root, finding, f"keep one, or put the right one into {root.name}")
    return path, read_list(path)


def find_repeated(root: Path, cases: Iterable[Case]) -> Iterator[UserError]:
    """Yield an error for each case that is listed twice, possibly for training and test."""
    seen: dict[str, Case] = {}
    for case in cases:
        first = seen.setdefault(case.name, case)
        if first is not case:
            splits = f"twice as {case.split}" if first.split == case.split else f"as {first.split} and as {case.split}"
            finding = f"the case {case.name} is listed {splits}"
            yield UserError(Code.CASE_DUPLICATE, root, finding, "keep one of the entries")


def missing_case(root: Path, source: Path, name: str, file: str) -> UserError:
    """Return the error for a listed case without files."""
    remedy = f"add the file, or put your own list into {root.name}"
    if source.parent == PUBLISHED:
        finding = f"case {name} is in the published list, but {file} is missing"
        return UserError(Code.FILE_MISSING, root, finding, remedy)
    return UserError(Code.FILE_MISSING, source, f"case {name} is listed, but {file} is missing", remedy)


def read_h5(path: Path, name: Literal["image", "label"], axes: int) -> NDArray[Any]:
    """Read an array with ``axes`` axes. Refuse values that are not finite, and labels that are not integers from 0."""
    array = _read(path, name, axes)
    refuse_non_finite(path, array[None])
    return class_numbers(path, array) if name == "label" else array


def image_scan(image: NDArray[Any]) -> Scan:
    """Return an image ``(*space)`` as a scan of one channel, with voxels of 1 mm and unknown orientation."""
    return replace(label_scan(image), array=image[None])


def label_scan(label: NDArray[Any]) -> Scan:
    """Return a label map ``(*space)`` as a scan with voxels of 1 mm and unknown orientation."""
    return Scan(label, Geometry(label.shape, tuple(map(tuple, np.eye(4).tolist())), qform_code=0, sform_code=0))


def _read(path: Path, name: str, axes: int) -> NDArray[Any]:
    h5py = import_optional("h5py", "h5 files")
    refuse_absent(path)
    try:
        with h5py.File(path, "r") as file:
            array = file.get(name)
            if not isinstance(array, h5py.Dataset):
                raise UserError(Code.BENCHMARK_MISMATCH, path, f"the file has no array {name!r}", AGAIN)
            if array.ndim != axes or 0 in array.shape or array.dtype.kind not in "fiub":
                finding = f"{name} has type {array.dtype} and shape {array.shape}, expected {axes} axes of numbers"
                raise UserError(Code.BENCHMARK_MISMATCH, path, finding, AGAIN)
            refuse_bytes(path, array.nbytes)
            return np.asarray(array[()])
    except (OSError, KeyError, RuntimeError) as error:
        finding = f"not a readable h5 file ({short_reason(error, path)})"
        raise UserError(Code.SCAN_DAMAGED, path, finding, AGAIN) from None
