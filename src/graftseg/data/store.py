"""The prepared store: arrays ready for a network, one file each, and a manifest that vouches for them.

``manifest.json`` names every file with its hash and is written last: a store without it is unfinished.
``cases/NAME.image.npy`` is float16 ``(C, *space)`` and ``cases/NAME.label.npy`` uint8 ``(*space)``. A store
for 2-D networks keeps volumes whole, with their slices along the last axis.
"""

import hashlib
import json
import tokenize
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, sha256_of, write_json
from graftseg.core.names import nfc
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import MILLIMETRES, Geometry, Split
from graftseg.data.dataset import name_problem
from graftseg.data.grid import Grid
from graftseg.data.sources import Data, Sources

MANIFEST, CASES, LOCK = "manifest.json", "cases", ".store-lock"
FORMAT = {"format": "graftseg store", "version": 1}
AGAIN = "run prepare again"
MOST_CLASSES = 255
WITH_LABELS = ("labeled", "validation")
Number = TypeVar("Number", np.float16, np.uint8)


@dataclass(frozen=True)
class Source:
    """A file that a stored case was made from, so that a change is noticed."""

    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True)
class StoredCase:
    """A case of the store.

    ``image`` and ``label`` are file names, ``shape`` counts prepared voxels along the axes of space,
    ``values`` are the label values that occur. ``grid`` leads back to the scan of ``geometry``.
    ``sources`` are the files it was made from, by their path within the data, and ``sha256`` the hashes
    of its own files.
    """

    name: str
    split: Split
    image: str
    label: str | None
    channels: int
    shape: tuple[int, ...]
    values: tuple[int, ...]
    grid: Grid
    geometry: Geometry
    sources: dict[str, Source]
    sha256: dict[str, str]

    def __post_init__(self) -> None:
        for file in (self.name, self.image, self.label or self.image, *self.sha256):
            if Path(file).name != file:
                raise ValueError(f"{file} is not a file name")
        if self.label is None and self.split in WITH_LABELS:
            raise ValueError(f"{self.name} is a {self.split} case without a label map")
        if not {self.image, self.label or self.image} <= self.sha256.keys():
            raise ValueError(f"the hash of a file of {self.name} is missing")
        if (self.geometry.shape, self.shape) != (self.grid.source_shape, self.grid.prepared_shape):
            raise ValueError(f"the grid of {self.name} is not that of its image")
        matrix = self.geometry.matrix
        if matrix.shape != (4, 4) or not abs(np.linalg.det(matrix)) > 0 or self.geometry.units not in MILLIMETRES:
            raise ValueError(f"the geometry of {self.name} places no voxels")

    def check_files(self, folder: Path) -> None:
        """Raise a UserError unless the files in ``folder`` are there with the right size, type and shape."""
        _open(folder / self.image, (self.channels, *self.shape), np.float16)
        if self.label is not None:
            _open(folder / self.label, self.shape, np.uint8)

    def to_json(self) -> dict[str, Any]:
        """The case as plain values."""
        content: dict[str, Any] = _CASE.dump_python(self, mode="json")
        return content

    @staticmethod
    def from_json(content: object) -> "StoredCase":
        """The case from plain values; a ValueError says what is wrong with them."""
        return _CASE.validate_python(content)


@dataclass(frozen=True)
class Store:
    """A read-only view of a prepared store.

    ``root`` is the data folder as it was given, ``settings`` how the scans were prepared, and ``classes`` the
    names of the label values 0 to K - 1.
    """

    path: Path
    root: str
    settings: dict[str, Any]
    classes: tuple[str, ...]
    channels: int
    dimensions: int
    cases: tuple[StoredCase, ...]

    def __post_init__(self) -> None:
        if problem := name_problem(self.classes) or self._mismatch():
            raise ValueError(problem)
        for case in self.cases:
            if case.channels != self.channels or max(case.values, default=0) >= len(self.classes):
                raise ValueError(f"{case.name} has other channels or classes than the store")

    def _mismatch(self) -> str | None:
        """What is wrong with the store as a whole; every case by itself is as it should be."""
        if len(self.classes) > MOST_CLASSES:
            return f"{len(self.classes)} classes, at most {MOST_CLASSES} are supported"
        if self.dimensions not in (2, 3):
            return f"dimensions is {self.dimensions}, neither 2 nor 3"
        if self.settings.get("dimensions", self.dimensions) != self.dimensions:
            return f"dimensions is {self.dimensions}, and {self.settings.get('dimensions')} in the settings"
        for case in self.cases:
            if len(case.shape) < self.dimensions:
                return f"{case.name} has {len(case.shape)} axes in a store of {self.dimensions} dimensions"
        name, times = max(Counter(nfc(case.name) for case in self.cases).items(), key=_second, default=("", 0))
        return f"the case {name} is listed {times} times" if times > 1 else None

    def of(self, split: Split) -> tuple[StoredCase, ...]:
        """The cases of one split."""
        return tuple(case for case in self.cases if case.split == split)

    def image(self, case: StoredCase) -> npt.NDArray[np.float16]:
        """The image ``(C, *space)`` of a case, mapped into memory and read as it is used."""
        return _open(self.path / CASES / case.image, (case.channels, *case.shape), np.float16)

    def label(self, case: StoredCase) -> npt.NDArray[np.uint8]:
        """The label map ``(*space)`` of a case, mapped into memory; an unlabeled case has none."""
        if case.label is None:
            raise ValueError(f"case {case.name} has no label")
        return _open(self.path / CASES / case.label, case.shape, np.uint8)

    @property
    def identity(self) -> str:
        """A hash of all that training can see: settings, classes, and the labeled and unlabeled cases, file by file."""
        cases = [[case.name, case.split, sorted(case.sha256.items())] for case in self.cases if case.split != "test"]
        content = json.dumps([self.settings, self.classes, cases], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def test_identity(self) -> str:
        """A hash of all that a test depends on: classes, and the test cases, file by file, with their places."""
        cases = [[case.name, sorted(case.sha256.items()), asdict(case.geometry)] for case in self.of("test")]
        content = json.dumps([self.classes, cases], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def settings_difference(self, asked: Mapping[str, Any]) -> str:
        """The settings in which it was prepared otherwise than asked for, in words; nothing where it was not."""
        names = [name for name in sorted({*self.settings, *asked}) if self.settings.get(name) != asked.get(name)]
        return ", ".join(f"data.{name} is {self.settings.get(name)}, not {asked.get(name)}" for name in names)

    def verify(self) -> None:
        """Read all files and compare their hashes with the manifest."""
        for case in self.cases:
            for name in case.sha256:
                self.verify_file(case, name)

    def verify_file(self, case: StoredCase, name: str) -> None:
        """Read one file of a case and compare its hash with the manifest."""
        path = self.path / CASES / name
        _refuse_absent(path)
        try:
            found = sha256_of(path)
        except OSError as error:
            raise _unreadable(path, error) from None
        if found != case.sha256[name]:
            raise UserError(
                Code.NOT_A_STORE, path, "the file is damaged, its hash is not the manifest's", f"delete it and {AGAIN}"
            )

    def to_json(self) -> dict[str, Any]:
        """The content of the manifest."""
        content: dict[str, Any] = _STORE.dump_python(self, mode="json", exclude={"path"})
        return FORMAT | content

    def save(self) -> None:
        """Write the manifest, unless it says the same already."""
        content = self.to_json()
        if _manifest(self.path) != content:
            write_json(self.path / MANIFEST, content)


def _second(pair: tuple[str, int]) -> int:
    return pair[1]


_CASE = TypeAdapter(StoredCase)
_STORE = TypeAdapter(Store)


def is_store(path: Data) -> TypeGuard[Path]:
    """Whether a folder is a prepared store, finished or not; folders of scans named one by one never are."""
    if isinstance(path, Sources):
        return False
    return (path / LOCK).is_file() or _manifest(path) is not None


def open_store(path: Path) -> Store:
    """Open a finished store after a look at the header and size of every image; ``verify`` reads all files.

    Label maps are looked at when they are asked for: whoever trains without a label never opens it.
    """
    manifest = path / MANIFEST
    if not manifest.is_file():
        if (path / LOCK).is_file():
            raise UserError(Code.NOT_A_STORE, path, "the store is unfinished", f"{AGAIN}, it goes on where it stopped")
        raise UserError(Code.NOT_A_STORE, path, f"not a prepared store, it has no {MANIFEST}", "make one with prepare")
    content = read_json(manifest)
    if not isinstance(content, dict) or content.get("format") != FORMAT["format"]:
        raise UserError(Code.NOT_A_STORE, manifest, "not the manifest of a prepared store", "make a store with prepare")
    if content.get("version") != FORMAT["version"]:
        finding = f"the store has format {content.get('version')}, this program reads {FORMAT['version']}"
        raise UserError(Code.NOT_A_STORE, manifest, finding, "prepare the data into a new folder")
    try:
        store = _STORE.validate_python(content | {"path": path})
    except ValidationError as error:
        first = error.errors()[0]
        entry = f" at {'.'.join(map(str, first['loc']))}" if first["loc"] else ""
        finding = f"the manifest is damaged{entry} ({first['msg'].removeprefix('Value error, ')})"
        raise UserError(Code.DAMAGED_FILE, manifest, finding, AGAIN) from None
    for case in store.cases:
        store.image(case)
    return store


def _manifest(path: Path) -> dict[str, Any] | None:
    """The content of a manifest, or None where there is no readable one."""
    try:
        content = read_json(path / MANIFEST)
    except (UserError, OSError):
        return None
    return content if isinstance(content, dict) and content.get("format") == FORMAT["format"] else None


def _open(path: Path, shape: tuple[int, ...], kind: type[Number]) -> npt.NDArray[Number]:
    """Map a stored array into memory, after comparing its header and size with what the manifest says."""
    _refuse_absent(path)
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise UserError(Code.DAMAGED_FILE, path, f"the file is damaged ({error})", f"delete it and {AGAIN}") from None
    found, expected = f"{array.dtype} {array.shape}", f"{np.dtype(kind)} {shape}"
    if found != expected:
        raise UserError(
            Code.DAMAGED_FILE, path, f"the file holds {found} where {expected} is expected", f"delete it and {AGAIN}"
        )
    if not array.flags.c_contiguous:
        finding = f"the file holds {found} with the first axis innermost (Fortran order), not the last"
        raise UserError(Code.DAMAGED_FILE, path, finding, f"delete it and {AGAIN}")
    if excess := path.stat().st_size - array.offset - array.nbytes:
        raise UserError(Code.DAMAGED_FILE, path, f"the file is {excess} bytes too long", f"delete it and {AGAIN}")
    return array


def _refuse_absent(path: Path) -> None:
    """Raise a UserError unless a stored file is there, saying what is in its place."""
    if path.is_file():
        return
    if path.exists():
        found = "a folder" if path.is_dir() else "no plain file"
        raise UserError(
            Code.DAMAGED_FILE, path, f"{found} is in the place of the file", f"move it elsewhere and {AGAIN}"
        )
    if path.is_symlink():
        raise UserError(
            Code.DAMAGED_FILE,
            path,
            "a link that leads to no file is in the place of the file",
            f"delete it and {AGAIN}",
        )
    raise UserError(Code.DAMAGED_FILE, path, "the file is missing", AGAIN)


def _unreadable(path: Path, error: OSError) -> UserError:
    """What to tell of a file that nothing is known to be wrong with, and that could not be read."""
    return UserError(
        Code.READ_FAILED, path, f"cannot be read ({error.strerror or error})", "check disk and permissions"
    )


NAME_DATA = "name a store or the folder of the scans as --data"


def find_store(run: RunFolder, remedy: str = NAME_DATA) -> Path:
    """The store of a run: in the run, where it was, or beside the folds, seeds or baselines that the run is one of."""
    facts = run.training_manifest()["store"]
    recorded = Path(str(facts.get("path", run.store)))
    if is_store(run.store):
        return run.store
    around = (folder / run.store.name for folder in run.path.resolve().parents[:2])
    for place in (recorded, *around):
        # what lies there now may belong to another run
        if is_store(place) and open_store(place).identity == facts["identity"]:
            return place
    raise UserError(Code.STORE_MISSING, run.path, f"its store is no longer at {recorded}", remedy)
