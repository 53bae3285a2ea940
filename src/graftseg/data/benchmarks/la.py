"""LA: left atrium in late gadolinium-enhanced MR, in the cropped and standardized h5 files that papers share.

``2018LA_Seg_Training Set/CASE/mri_norm2.h5`` contains ``image`` and ``label``. ``train.list`` and ``test.list`` contain
the names of the cases. Papers use the first cases of ``train.list`` as labeled cases.
"""

from dataclasses import dataclass
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Split
from graftseg.data.benchmarks.case_lists import entries_of, find_repeated, missing_case
from graftseg.data.benchmarks.h5 import image_scan, label_scan, read_h5
from graftseg.data.dataset import Dataset, label_path
from graftseg.data.folders import with_children
from graftseg.data.scans import Scan

EXPECTED = "2018LA_Seg_Training Set/CASE/mri_norm2.h5"
FOLDER, FILE = "2018LA_Seg_Training Set", "mri_norm2.h5"
CLASSES = {0: "background", 1: "left atrium"}
LISTS: tuple[tuple[str, Split], ...] = (("train", "labeled"), ("test", "test"))


@dataclass(frozen=True)
class LaFiles:
    """Reader of one volume per file, with axes in stored order."""

    def image(self, case: Case) -> Scan:
        """Read the image without its label, which is in the same file."""
        return image_scan(read_h5(case.images[0], "image", 3))

    def label(self, case: Case) -> Scan:
        """Read the label map."""
        return label_scan(read_h5(label_path(case), "label", 3))


def find_la(folder: Path) -> list[Path]:
    """Return the given folder if it has the LA layout, otherwise all subfolders with this layout."""
    found = [child for child in with_children(folder) if _folder_of_cases(child)]
    return [folder] if folder in found else found


def read_la(root: Path) -> Dataset:
    """Return the cases of a folder with the LA layout, in the order of the lists."""
    scans = _folder_of_cases(root) or root
    lists = root.parent if scans == root and root.name == FOLDER else root
    cases: list[Case] = []
    problems: list[UserError] = []
    for kind, split in LISTS:
        source, entries = entries_of(lists, f"la-{kind}.list", f"{kind}.list")
        for entry in entries:
            name = entry.removesuffix(f"/{FILE}")
            if Path(name).name != name or name == "..":
                finding = f"{entry!r} is not the name of a case"
                raise UserError(Code.BENCHMARK_MISMATCH, source, finding, "list only the names of case folders")
            path = scans / name / FILE
            if path.is_file():
                cases.append(Case(path.parent.name, (path,), path, split))
            else:
                problems.append(missing_case(root, source, path.parent.name, f"{path.parent.name}/{FILE}"))
    problems += find_repeated(root, cases)
    return Dataset(root, "la", tuple(cases), CLASSES, tuple(problems), reader=LaFiles())


def _folder_of_cases(root: Path) -> Path | None:
    """Return the folder that contains the case folders, or None if the layout differs."""
    folders = (root / FOLDER, root)
    return next((folder for folder in folders if next(folder.glob(f"*/{FILE}"), None)), None)
