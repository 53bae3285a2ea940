"""The test scans of a run and their label maps: where they lie, and whether they can be scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote

from graftseg.core.errors import Code, UserError
from graftseg.core.names import by_nfc, nfc, same_names
from graftseg.core.progress import in_parallel
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Geometry
from graftseg.data.scans import grid_difference, read_case, read_geometry
from graftseg.data.scans_to_predict import scan_cases
from graftseg.data.store import Store, find_store, is_store, open_store
from graftseg.evaluation.references import Reference, references_in
from graftseg.evaluation.scores import check_label_values

IMAGES, LABELS = "imagesTs", "labelsTs"
NAME_THEM = f"name a folder with {IMAGES}/ and {LABELS}/, a store with test cases, or --test-images and --test-labels"
FOLDS = "without any, train with --folds, which scores labeled scans by networks that never saw them"
SCORED = "the labeled scans are scored already, each by a network that never saw it: graftseg report"
Folder = str | Path


@dataclass(frozen=True)
class EvaluationScans:
    """Where test scans and their label maps lie; both the same where it is a prepared store."""

    images: Path
    labels: Path


def find_test_scans(
    run: RunFolder, data: Folder | None, images: Folder | None, labels: Folder | None
) -> EvaluationScans:
    """What is named as a folder or a store or as two folders, or else what the run was trained from."""
    if images is None and labels is None:
        return _arranged(Path(data)) if data is not None else _by_default(run)
    if data is not None or images is None or labels is None:
        raise UserError(Code.NO_TEST_CASES, "test", "the test scans are not named in one way", NAME_THEM)
    return EvaluationScans(_folder(Path(images)), _folder(Path(labels)))


def has_test_scans(run: RunFolder) -> bool:
    """Whether test scans with labels are found where the run was trained from."""
    try:
        return bool(_by_default(run))
    except (UserError, OSError):
        return False


def check_test_scans(scans: EvaluationScans, run: RunFolder, *, allow_missing: bool) -> set[str]:
    """The cases to test; what a network of the run could not be scored on is refused before anything is predicted."""
    facts = run.begun()["store"]
    classes, channels = tuple(map(str, facts["classes"])), int(facts["channels"])
    files: dict[str, tuple[Path, ...]] = {}
    if is_store(scans.images):
        names = _stored(open_store(scans.images), classes, channels)
    else:
        found, failures = scan_cases(scans.images, channels, run.trained_on())
        files, names = {case.name: case.images for case in found}, {case.name for case in found} | set(failures)
    labels = by_nfc(references_in(scans.labels))
    both = _with_partners(scans, names, set(labels), allow_missing=allow_missing)
    if files:
        if failures:
            raise failures[min(failures)]
        _check_channels(files[min(files)], channels)
    check = partial(_check_case, files=files, labels=labels, classes=dict(enumerate(classes)), channels=channels)
    in_parallel(check, sorted(both | files.keys()), "Checking test scans")
    return both


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise UserError(
            Code.FOLDER_MISSING, path, "this is a file" if path.exists() else "there is no such folder", NAME_THEM
        )
    return path


def _arranged(data: Path) -> EvaluationScans:
    if is_store(data):
        return EvaluationScans(data, data)
    if not _is_arranged(_folder(data)):
        raise UserError(
            Code.NO_TEST_CASES, data, f"holds no test scans with labels in {IMAGES}/ and {LABELS}/", NAME_THEM
        )
    return EvaluationScans(data / IMAGES, data / LABELS)


def _by_default(run: RunFolder) -> EvaluationScans:
    """What the run was trained from: the scans themselves if they are still there, or else the store."""
    store = open_store(find_store(run, NAME_THEM))
    root = Path(store.root)
    if _is_arranged(root):
        return EvaluationScans(root / IMAGES, root / LABELS)
    if not store.of("test"):
        folder = RunFolder(run.path.parent)
        more = f"{SCORED} {quote(str(folder.path))}" if folder.folds_file.is_file() else FOLDS
        raise UserError(
            Code.NO_TEST_CASES, root, "no test scans with labels are known of this run", f"{NAME_THEM}; {more}"
        )
    return EvaluationScans(store.path, store.path)


def _is_arranged(folder: Path) -> bool:
    return (folder / IMAGES).is_dir() and (folder / LABELS).is_dir()


def _stored(store: Store, classes: tuple[str, ...], channels: int) -> set[str]:
    """The test cases of a store, which must be one that the run could have been trained on."""
    if store.classes != classes:
        finding = f"its classes are {', '.join(store.classes)} where the run has {', '.join(classes)}"
        raise UserError(Code.NO_TEST_CASES, store.path, finding, "give the store that the run was trained for")
    if store.channels != channels:
        finding = f"the number of channels of its scans is {store.channels} where the run was trained on {channels}"
        raise UserError(Code.NO_TEST_CASES, store.path, finding, "give the store that the run was trained for")
    return {case.name for case in store.of("test")}


def _with_partners(scans: EvaluationScans, names: set[str], labels: set[str], *, allow_missing: bool) -> set[str]:
    """The cases with both a scan and a label map; without one of the two is refused unless it is allowed."""
    both = same_names(names, labels)
    if not both:
        finding = f"none of its {len(labels)} label maps has the name of a scan in {scans.images}"
        raise UserError(
            Code.NO_TEST_CASES,
            scans.labels,
            finding,
            "give the two files of a case the same name, without _0000 for labels",
        )
    for folder, what, alone in (
        (scans.images, "scan without a label map", names - both),
        (scans.labels, "label map without a scan", labels - same_names(labels, names)),
    ):
        if alone and not allow_missing:
            finding = f"{min(alone)} is a {what} of the same name ({len(alone)} are)"
            raise UserError(
                Code.NO_TEST_CASES, folder, finding, "add what is missing, or leave them out with --allow-missing"
            )
    return both


def _check_channels(files: tuple[Path, ...], channels: int) -> None:
    """Refuse scans of another number of channels, as the first tells; only reading a file shows how many it has."""
    found = len(read_case(files, channels).array)
    if found != channels:
        finding = f"the number of channels is {found} where the run was trained on {channels}"
        raise UserError(
            Code.NO_TEST_CASES,
            files[0],
            finding,
            "give it the same channels: a folder with CASE_0000, CASE_0001, or one file",
        )


def _check_case(
    name: str,
    *,
    files: Mapping[str, tuple[Path, ...]],
    labels: Mapping[str, Reference],
    classes: Mapping[int, str],
    channels: int,
) -> None:
    """Refuse a scan whose header cannot be read, and a label map of other classes or on another grid than its scan."""
    geometry = _common_geometry(files[name], channels) if name in files else None
    reference = labels.get(nfc(name))
    if reference is None:
        return
    label = reference.read()
    if geometry is not None and (difference := grid_difference(geometry, label.geometry)):
        finding = f"not on the grid of its scan {files[name][0].name}: {difference}"
        raise UserError(Code.NO_TEST_CASES, reference.path, finding, "bring label map and scan to one grid")
    check_label_values(reference.path, label.array, classes)


def _common_geometry(files: tuple[Path, ...], channels: int) -> Geometry:
    """Where the voxels of a scan lie by the headers of its channels, which must agree."""
    first, *others = (read_geometry(path, channels) for path in files)
    for path, geometry in zip(files[1:], others, strict=True):
        if difference := grid_difference(first, geometry):
            finding = f"its grid is not that of {files[0].name}: {difference}"
            raise UserError(Code.NO_TEST_CASES, path, finding, "bring all channels of a case to one grid")
    return first
