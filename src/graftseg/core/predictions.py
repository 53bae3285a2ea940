"""The manifest of a folder of label maps: network, settings, cases and failures."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, write_checked

MANIFEST = "manifest.json"
FORMAT = {"format": "graftseg predictions", "version": 1}


@dataclass(frozen=True)
class PredictedCase:
    """A predicted label map and the files that belong to it.

    ``sha256`` is the checksum of the image, or None if the image is not from a store. ``mean_uncertainty`` is the mean
    over voxels with a foreground probability of at least 5 %. It is None without such voxels, or if not requested.
    """

    case: str
    images: tuple[str, ...]
    output: str
    seconds: float
    is_empty: bool = False
    probabilities: str | None = None
    uncertainty: str | None = None
    mean_uncertainty: float | None = None
    picture: str | None = None
    sha256: str | None = None

    @property
    def extras(self) -> set[str]:
        """Names of the additional files."""
        return {name for name in (self.probabilities, self.uncertainty, self.picture) if name is not None}

    @property
    def files(self) -> set[str]:
        """Names of all files of the case."""
        return {self.output} | self.extras


@dataclass(frozen=True)
class Manifest:
    """The manifest of a folder of label maps.

    ``networks`` is the number of averaged networks. ``weights`` is the checksum of a single network, or a checksum of
    the checksums of several networks. ``inference`` contains the settings. ``checkpoint`` describes how the checkpoint
    was selected. ``opinions`` describes which predictions were averaged for the uncertainty. ``peak_memory`` is in
    bytes, for the process and the GPU. ``failures`` contains the reason for each case without a label map.
    ``unfinished`` contains the files of a running or interrupted call. Some of them may exist already.
    """

    run: str
    weights: str
    inference: dict[str, Any]
    classes: tuple[str, ...]
    checkpoint: str
    device: str
    versions: dict[str, str]
    cases: tuple[PredictedCase, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    networks: int = 1
    opinions: str | None = None
    started: str | None = None
    ended: str | None = None
    peak_memory: dict[str, int] = field(default_factory=dict)

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


def read_manifest(folder: Path, remedy: str) -> Manifest | None:
    """Return a folder's manifest, or None if there is none. The error for an invalid manifest ends in ``remedy``."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    content = read_json(path)
    is_known = isinstance(content, dict) and FORMAT.items() <= content.items()
    try:
        return _MANIFEST.validate_python(content if is_known else None)
    except ValidationError:
        finding = "damaged or edited, not a manifest of label maps"
        raise UserError(Code.DAMAGED_FILE, path, finding, remedy) from None


def extra_files(folder: Path) -> set[str]:
    """Return the additional files (not label maps) that the manifest of a folder lists. Ignore an invalid manifest."""
    try:
        manifest = read_manifest(folder, "")
    except UserError:
        return set()
    return {name for case in manifest.cases for name in case.extras} if manifest else set()
