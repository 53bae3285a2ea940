"""The prepared store: one array file per image and label map, and a manifest with their checksums.

``manifest.json`` lists every file with its SHA-256 and is written last. A store without a manifest is unfinished.
``cases/NAME.image.npy`` is float16 ``(C, *space)`` and ``cases/NAME.label.npy`` is uint8 ``(*space)``. A store for 2-D
networks may also contain volumes. The network uses their slices along the last axis.
"""

import hashlib
import io
import json
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, write_checked
from graftseg.core.reading import check_regular, sha256_of
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import SPLITS, Geometry, Split
from graftseg.data.formats.scan import unreadable
from graftseg.data.grid import Grid
from graftseg.data.sources import Data, Sources

MANIFEST, CASES, LOCK = "manifest.json", "cases", ".store-lock"
FORMAT = {"format": "graftseg store", "version": 1}
RUN_PREPARE = "run prepare again"
DATA_REMEDY = "pass a store or the folder of scans as --data"
Number = TypeVar("Number", np.float16, np.uint8)


@dataclass(frozen=True)
class Source:
    """Size, modification time and checksum of a source file, to detect changes."""

    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True)
class StoredCase:
    """A case of the store."""

    name: str
    split: Split
    image: str  # file name
    label: str | None  # file name
    channels: int
    shape: tuple[int, ...]  # prepared, without the channel axis
    values: tuple[int, ...]  # label values that occur
    grid: Grid  # conversion of the scan
    geometry: Geometry  # of the scan
    sources: dict[str, Source]  # by path relative to the data folder
    sha256: dict[str, str]  # checksums of ``image`` and ``label``

    def has_files(self, folder: Path) -> bool:
        """Return whether the files of the case exist in ``folder`` with the right type and shape."""
        try:
            _open(folder / self.image, (self.channels, *self.shape), np.float16)
            if self.label is not None:
                _open(folder / self.label, self.shape, np.uint8)
        except UserError:
            return False
        return True


@dataclass(frozen=True)
class Store:
    """A prepared store: its path and the content of its manifest."""

    path: Path
    root: str  # the data folder
    settings: dict[str, Any]  # of the preparation
    classes: tuple[str, ...]  # names of the label values 0 to K - 1
    channels: int
    dimensions: int
    cases: tuple[StoredCase, ...]

    def of(self, split: Split) -> tuple[StoredCase, ...]:
        """Return the cases of one split."""
        return tuple(case for case in self.cases if case.split == split)

    def description(self) -> dict[str, Any]:
        """Return what ``graftseg info`` prints about the store, as JSON values."""
        return {
            "kind": "store",
            "path": str(self.path),
            "identity": self.identity,
            "settings": self.settings,
            "classes": list(self.classes),
            "channels": self.channels,
            "cases": {split: len(self.of(split)) for split in SPLITS},
            "voxels": sum(int(self.image(case).size) for case in self.cases),
        }

    def image(self, case: StoredCase) -> npt.NDArray[np.float16]:
        """Return the image ``(C, *space)`` of a case as a memory map."""
        return _open(self.path / CASES / case.image, (case.channels, *case.shape), np.float16)

    def label(self, case: StoredCase) -> npt.NDArray[np.uint8]:
        """Return the label map ``(*space)`` of a labeled case as a memory map."""
        if case.label is None:
            raise ValueError(f"case {case.name} has no label")
        return _open(self.path / CASES / case.label, case.shape, np.uint8)

    def read_image(self, case: StoredCase) -> npt.NDArray[np.float16]:
        """Verify the checksum of an image and load it into memory."""
        self.verify_file(case, case.image)
        return np.array(self.image(case))

    def read_label(self, case: StoredCase) -> npt.NDArray[np.uint8]:
        """Verify the checksum of a label map and load it into memory."""
        label = self.label(case)
        self.verify_file(case, str(case.label))
        return np.array(label)

    @property
    def identity(self) -> str:
        """Hash of everything that training can see: settings, classes, and the files of all cases except test cases."""
        cases = [[case.name, case.split, sorted(case.sha256.items())] for case in self.cases if case.split != "test"]
        content = json.dumps([self.settings, self.classes, cases], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def test_identity(self) -> str:
        """Hash of everything that test results depend on: the classes, and files and geometry of the test cases."""
        cases = [[case.name, sorted(case.sha256.items()), asdict(case.geometry)] for case in self.of("test")]
        content = json.dumps([self.classes, cases], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def settings_difference(self, requested: Mapping[str, Any]) -> str:
        """Describe the settings that differ from ``requested``. Return an empty string if all are equal."""
        stored = self.settings
        names = [name for name in sorted({*stored, *requested}) if stored.get(name) != requested.get(name)]
        return ", ".join(f"data.{name} is {stored.get(name)}, not {requested.get(name)}" for name in names)

    def verify(self) -> None:
        """Raise a UserError if the checksum of a file differs from the manifest."""
        for case in self.cases:
            for name in case.sha256:
                self.verify_file(case, name)

    def verify_file(self, case: StoredCase, name: str) -> None:
        """Raise a UserError if the checksum of the file ``name`` of a case differs from the manifest."""
        path = self.path / CASES / name
        with _reading(path):
            checksum = sha256_of(path)
        if checksum != case.sha256[name]:
            raise _damaged(path, "checksum mismatch")

    def save(self) -> None:
        """Write the manifest if it changed."""
        content = FORMAT | _STORE.dump_python(self, mode="json", exclude={"path"})
        if _manifest(self.path) != content:
            write_checked(self.path / MANIFEST, content)


def image_checksum(image: npt.NDArray[Any]) -> str:
    """Return the checksum that the file of a prepared image ``(C, *space)`` has in a store."""
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(image, np.float16))
    return hashlib.sha256(stream.getbuffer()).hexdigest()


ADAPTER = TypeAdapter(StoredCase)  # converts a case to JSON values and back
_STORE = TypeAdapter(Store)


def is_store(path: Data) -> TypeGuard[Path]:
    """Return whether the data is a prepared store, finished or not. Separate folders (``Sources``) are not a store."""
    if isinstance(path, Sources):
        return False
    return (path / LOCK).is_file() or _manifest(path) is not None


def open_store(path: Path) -> Store:
    """Open a finished store and check the header of every image. Labels are opened only when they are needed."""
    manifest = path / MANIFEST
    if not manifest.is_file():
        finding, remedy = f"not a prepared store, {MANIFEST} is missing", "create it with prepare"
        if (path / LOCK).is_file():
            finding, remedy = "the store is unfinished", f"{RUN_PREPARE} to resume"
        raise UserError(Code.NOT_A_STORE, path, finding, remedy)
    content = read_json(manifest)
    if not isinstance(content, dict) or content.get("format") != FORMAT["format"]:
        raise UserError(Code.NOT_A_STORE, manifest, "not the manifest of a prepared store", "create one with prepare")
    if content.get("version") != FORMAT["version"]:
        finding = f"the store has format {content.get('version')}, but this version reads format {FORMAT['version']}"
        raise UserError(Code.NOT_A_STORE, manifest, finding, "prepare the data into a new folder")
    try:
        store = _STORE.validate_python(content | {"path": path})
    except ValidationError as error:
        raise _damaged(manifest, ".".join(map(str, error.errors()[0]["loc"]))) from None
    for case in store.cases:
        store.image(case)
    return store


def find_store(run: RunFolder, remedy: str = DATA_REMEDY) -> Path:
    """Return the store of a run: in the run folder, at the recorded path or, of folds and seeds, in a parent folder."""
    entry = run.training_manifest()["store"]
    recorded = Path(str(entry.get("path", run.store)))
    if is_store(run.store):
        return run.store
    above = (folder / run.store.name for folder in run.path.resolve().parents[:2])
    for candidate in (recorded, *above):
        # compare the identity, because another run may have replaced the store
        if is_store(candidate) and open_store(candidate).identity == entry["identity"]:
            return candidate
    raise UserError(Code.STORE_MISSING, run.path, f"its store is no longer at {recorded}", remedy)


def _manifest(path: Path) -> dict[str, Any] | None:
    """Return the content of the manifest in a folder, or None if it is missing or invalid."""
    try:
        content = read_json(path / MANIFEST)
    except (UserError, OSError):
        return None
    return content if isinstance(content, dict) and content.get("format") == FORMAT["format"] else None


def _open(path: Path, shape: tuple[int, ...], dtype: type[Number]) -> npt.NDArray[Number]:
    """Open a stored array as a memory map and compare its type and shape with the manifest."""
    with _reading(path):
        check_regular(path)
        array = np.lib.format.open_memmap(path, mode="r")
    if (array.dtype, array.shape, array.flags.c_contiguous) != (np.dtype(dtype), shape, True):
        raise _damaged(path, f"{array.dtype} {array.shape} instead of {np.dtype(dtype)} {shape}")
    return array


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an error while reading a file of the store into a UserError."""
    if not path.is_file():
        raise _damaged(path, "missing")
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, TypeError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(Code.DAMAGED_FILE, path, f"damaged or edited ({reason})", f"delete it and {RUN_PREPARE}")
