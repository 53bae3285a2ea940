"""The manifest of a folder of label maps: network, settings, cases and failures.

``manifest.json`` is written when a prediction starts and ends. In between, each scan adds a line to a journal.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from graftseg.core.errors import Code, UserError
from graftseg.core.files import parse_json, read_json, write_checked, write_errors, write_text
from graftseg.core.names import nfc
from graftseg.core.reading import read_bytes

MANIFEST = "manifest.json"
JOURNALS = "cases*.jsonl"  # pattern of the journals: ``cases.jsonl``, and one for each shard
FORMAT = {"format": "graftseg predictions", "version": 1}


@dataclass(frozen=True)
class PredictedCase:
    """A predicted case and its files."""

    case: str
    images: tuple[str, ...]
    output: str  # name of the label map
    seconds: float
    is_empty: bool = False
    probabilities: str | None = None  # names of the additional files
    uncertainty: str | None = None
    mean_uncertainty: float | None = None  # over voxels with a foreground probability of at least 5 %, if any
    picture: str | None = None
    sha256: str | None = None  # checksum of the image, or None if the image is not from a store
    precision: str = "float32"
    found: tuple[int, ...] = ()  # label values in the label map
    key: str | None = None  # checksum of scan, networks and settings; None in older versions
    checksums: tuple[str, ...] = ()  # checksums of ``files``, in this order

    @property
    def extras(self) -> tuple[str, ...]:
        """Names of the additional files."""
        return tuple(name for name in (self.probabilities, self.uncertainty, self.picture) if name is not None)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files of the case, the label map first."""
        return (self.output, *self.extras)


@dataclass(frozen=True)
class Manifest:
    """The manifest of a folder of label maps."""

    run: str
    weights: str  # checksum of the network, or a checksum of the checksums of several networks
    inference: dict[str, Any]  # settings of the prediction
    classes: tuple[str, ...]
    checkpoint: str  # how the checkpoint was selected
    device: str
    versions: dict[str, str]
    cases: tuple[PredictedCase, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)  # reason for each case without a label map
    unfinished: tuple[str, ...] = ()  # files of a running or interrupted call; some of them may exist already
    networks: int = 1  # number of averaged networks
    opinions: str | None = None  # which predictions were averaged for the uncertainty
    started: str | None = None
    ended: str | None = None
    peak_memory: dict[str, int] = field(default_factory=dict)  # bytes used by the process and by the GPU
    selected_on: str | None = None  # cases on which the checkpoint was selected

    def __post_init__(self) -> None:
        for name in self.outputs:
            if Path(name).name != name:
                raise ValueError(f"{name} is not a file name")

    @property
    def outputs(self) -> set[str]:
        """Names of the files of all predicted cases, and of the files of a running or interrupted call."""
        return {name for case in self.cases for name in case.files} | set(self.unfinished)

    @property
    def is_complete(self) -> bool:
        """Whether every case has a label map."""
        return not (self.failures or self.unfinished)

    def save(self, folder: Path) -> None:
        """Write the manifest."""
        write_checked(folder / MANIFEST, FORMAT | _MANIFEST.dump_python(self, mode="json"))


_MANIFEST = TypeAdapter(Manifest)
_CASE = TypeAdapter(PredictedCase)


def read_manifest(folder: Path, remedy: str) -> Manifest | None:
    """Return the manifest with the cases of its journals, or None. ``remedy`` is for the error of an invalid one."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    content = read_json(path)
    is_known = isinstance(content, dict) and FORMAT.items() <= content.items()
    try:
        manifest = _MANIFEST.validate_python(content if is_known else None)
    except ValidationError:
        finding = "damaged or edited, not a manifest of label maps"
        raise UserError(Code.DAMAGED_FILE, path, finding, remedy) from None
    return _with_journals(folder, manifest) if manifest.unfinished else manifest


def precisions_of(folders: Sequence[Path], cases: Iterable[str]) -> list[str] | None:
    """Return the precision of these label maps in each folder, or None if all are equal or one is not known."""
    names = {nfc(case) for case in cases}
    manifests = [find_manifest(folder) for folder in folders]
    predicted = [[] if manifest is None else manifest.cases for manifest in manifests]
    found = [" and ".join(sorted({case.precision for case in each if nfc(case.case) in names})) for each in predicted]
    return found if all(found) and len(set(found)) > 1 else None


def _with_journals(folder: Path, manifest: Manifest) -> Manifest:
    """Add the cases of the journals whose files are unfinished in the manifest. The manifest stays incomplete."""
    unfinished = set(manifest.unfinished)
    journaled = (case for journal in sorted(folder.glob(JOURNALS)) for case in _cases_in(journal))
    added = {case.case: case for case in journaled if unfinished.issuperset(case.files)}
    added = {name: case for name, case in added.items() if (folder / case.output).is_file()}
    earlier = [case for case in manifest.cases if case.case not in added]
    return replace(manifest, cases=(*earlier, *added.values()))


def _cases_in(journal: Path) -> Iterator[PredictedCase]:
    """Yield the cases of a journal, without failures and without incomplete lines of a killed process."""
    for line in read_bytes(journal).splitlines():
        try:
            content = parse_json(line)
            if "failure" not in content:
                yield _CASE.validate_python(content)
        except (ValueError, TypeError, RecursionError):
            continue


def journal_name(shard: str | None) -> str:
    """Return the name of the journal of a shard, or of a prediction without shards."""
    return "cases.jsonl" if shard is None else f"cases-{shard}.jsonl"


def write_journal(path: Path, cases: Iterable[PredictedCase]) -> None:
    """Start a journal with the cases of earlier predictions."""
    write_text(path, "".join(_line(_CASE.dump_python(case, mode="json")) for case in cases))


def append_to_journal(path: Path, entry: PredictedCase | dict[str, str]) -> None:
    """Add a case, or a failure with its reason, in a single write, so that concurrent readers see complete lines."""
    content = _line(entry if isinstance(entry, dict) else _CASE.dump_python(entry, mode="json")).encode()
    with write_errors(path, len(content)):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
        try:
            os.write(handle, content)
        finally:
            os.close(handle)


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, allow_nan=False) + "\n"


def find_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None if the folder has none or another program wrote it."""
    try:
        return read_manifest(folder, "")
    except UserError:
        return None


def extra_files(folder: Path) -> set[str]:
    """Return the additional files (not label maps) in the manifest of a folder. Ignore an invalid manifest."""
    manifest = find_manifest(folder)
    return {name for case in manifest.cases for name in case.extras} if manifest else set()
