"""What a folder of label maps says of itself: which network made them, from what, and what is missing."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, write_json

MANIFEST = "manifest.json"
FORMAT = {"format": "graftseg predictions", "version": 1}


@dataclass(frozen=True)
class PredictedCase:
    """A label map that was written, and what was written beside it.

    ``sha256`` is the hash of the image in the store that it was taken from, if it was one.
    ``mean_uncertainty`` is that of the voxels that may be foreground; None where it was not asked for or there is none.
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
        """Names of the files beside the label map."""
        return {name for name in (self.probabilities, self.uncertainty, self.picture) if name is not None}

    @property
    def files(self) -> set[str]:
        """Names of all files of the case."""
        return {self.output} | self.extras


@dataclass(frozen=True)
class Manifest:
    """What a folder of label maps says of itself.

    ``weights`` is the hash of the network, ``checkpoint`` how that network was chosen among those of its training and
    ``inference`` how it was used; where several ``networks`` were averaged, ``weights`` is the hash of their hashes.
    ``opinions`` says whose probabilities were averaged for the uncertainty. ``peak_memory`` is in bytes, of the process
    and of a GPU. ``failures`` gives the reason for each case that has no label map. ``unfinished`` names the files that
    an interrupted call did not come to.
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
        """Names of the files that this program wrote, or was about to write."""
        return {name for case in self.cases for name in case.files} | set(self.unfinished)

    @property
    def is_complete(self) -> bool:
        """Whether every case has its label map."""
        return not (self.failures or self.unfinished)

    def save(self, folder: Path) -> None:
        """Write the manifest."""
        write_json(folder / MANIFEST, FORMAT | _MANIFEST.dump_python(self, mode="json"))


_MANIFEST = TypeAdapter(Manifest)


def read_manifest(folder: Path, remedy: str) -> Manifest | None:
    """The manifest of a folder, None where it has none; what is no manifest of label maps is refused."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or {key: content.get(key) for key in FORMAT} != FORMAT:
        raise UserError(Code.DAMAGED_FILE, path, "not a manifest of label maps", remedy)
    try:
        return _MANIFEST.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        entry = ".".join(map(str, first["loc"])) or "its cases"
        finding = f"damaged at {entry} ({first['msg'].removeprefix('Value error, ')})"
        raise UserError(Code.DAMAGED_FILE, path, finding, remedy) from None


def extra_files(folder: Path) -> set[str]:
    """Names of files of a folder that stand beside label maps and are none, as its manifest, if it has one, tells."""
    try:
        manifest = read_manifest(folder, "")
    except UserError:
        return set()
    return {name for case in manifest.cases for name in case.extras} if manifest else set()
