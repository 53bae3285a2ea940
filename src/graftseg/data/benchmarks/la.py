"""LA: left atrium in late gadolinium MR, the cropped and standardised h5 files that papers share.

``2018LA_Seg_Training Set/CASE/mri_norm2.h5`` holds ``image`` and ``label``; ``train.list`` and ``test.list`` name the
cases. The labeled cases of a paper are the first of ``train.list``.
"""

from dataclasses import dataclass
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Split
from graftseg.data.benchmarks.h5 import read_h5_image, read_h5_label
from graftseg.data.benchmarks.lists import absent, entries_of, repeated
from graftseg.data.benchmarks.placeless import without_geometry
from graftseg.data.dataset import Dataset, label_path
from graftseg.data.folders import with_children
from graftseg.data.scans import Scan

LOOKED_FOR = "2018LA_Seg_Training Set/CASE/mri_norm2.h5"
FOLDER, FILE = "2018LA_Seg_Training Set", "mri_norm2.h5"
CLASSES = {0: "background", 1: "left atrium"}
LISTS: tuple[tuple[str, Split], ...] = (("train", "labeled"), ("test", "test"))


@dataclass(frozen=True)
class LaFiles:
    """One volume a file, its axes as they are stored."""

    def image(self, case: Case) -> Scan:
        """The image, with the label of the same file left alone."""
        image = read_h5_image(case.images[0], 3)
        return without_geometry(image[None], image.shape)

    def label(self, case: Case) -> Scan:
        """The label map."""
        label = read_h5_label(label_path(case), 3)
        return without_geometry(label, label.shape)


def find_la(folder: Path) -> list[Path]:
    """The folders of this layout: the one that is named, else those within it."""
    return [folder] if _scans(folder) else [child for child in with_children(folder) if _scans(child)]


def read_la(root: Path) -> Dataset:
    """The cases of a folder that was found, in the order of the lists."""
    scans = _scans(root) or root
    lists = root.parent if scans == root and root.name == FOLDER else root
    cases: list[Case] = []
    problems: list[UserError] = []
    for name, split in LISTS:
        source, entries = entries_of(lists, f"la-{name}.list", f"{name}.list")
        for entry in entries:
            path = scans / _folder(source, entry) / FILE
            if path.is_file():
                cases.append(Case(path.parent.name, (path,), path, split))
            else:
                problems.append(absent(root, source, path.parent.name, f"{path.parent.name}/{FILE}"))
    problems += repeated(root, cases)
    return Dataset(root, "la", tuple(cases), CLASSES, tuple(problems), reader=LaFiles())


def _folder(source: Path, entry: str) -> str:
    """The name of the folder that an entry stands for."""
    name = entry.removesuffix(f"/{FILE}")
    if Path(name).name != name or name == "..":
        raise UserError(
            Code.BENCHMARK_MISMATCH,
            source,
            f"{entry!r} is not the name of a case",
            "write the name of its folder alone",
        )
    return name


def _scans(root: Path) -> Path | None:
    """The folder with a folder for each case, if this is a folder of the layout."""
    places = (root / FOLDER, root)
    return next((place for place in places if next(place.glob(f"*/{FILE}"), None)), None)
