"""The labeled test scans of a run: where they are, and whether predictions for them can be scored."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from graftseg.core.errors import Code, UserError
from graftseg.core.names import by_nfc, nfc, same_names
from graftseg.core.progress import in_parallel
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Geometry
from graftseg.data.folders import require_folder
from graftseg.data.formats.scan import guess_lines
from graftseg.data.grouping import CHANNEL
from graftseg.data.labels import check_label_values
from graftseg.data.scans import Scan, grid_difference, read_case, read_geometry
from graftseg.data.scans_to_predict import check_channels, scan_cases
from graftseg.data.store import Store, find_store, is_store, open_store
from graftseg.data.swapped_files import GRAY_VALUES, refuse_image, refuse_many_values
from graftseg.evaluation.references import Reference, references_in

logger = logging.getLogger(__name__)
IMAGES, LABELS = "imagesTs", "labelsTs"
DATA_REMEDY = f"name a folder with {IMAGES}/ and {LABELS}/, a store with test cases, or --test-images and --test-labels"
FOLDS_REMEDY = "without test scans, train with --folds, which scores each labeled scan with a network that never saw it"
SCORED_BY_FOLDS = "cross-validation has already scored the labeled scans: graftseg report"
Folder = str | Path


@dataclass(frozen=True)
class EvaluationScans:
    """The location of test cases."""

    images: Path  # folder of the scans, or a store
    labels: Path  # folder of the label maps, or the same store


def find_test_scans(
    run: RunFolder, data: Folder | None, images: Folder | None, labels: Folder | None
) -> EvaluationScans:
    """Return the test scans in ``data`` (folder or store), in a pair of folders, or by default in the training data."""
    if images is None and labels is None:
        return _in_data_folder(Path(data)) if data is not None else _of_training_data(run)
    if data is not None or images is None or labels is None:
        finding = "needs either DATA, or both --test-images and --test-labels"
        raise UserError(Code.OPTION_CONFLICT, "test", finding, DATA_REMEDY)
    for folder in (images, labels):
        require_folder(Path(folder), DATA_REMEDY)
    return EvaluationScans(Path(images), Path(labels))


def has_test_scans(run: RunFolder) -> bool:
    """Return whether the run's training data contains test scans with labels."""
    try:
        _of_training_data(run)
    except (UserError, OSError):
        return False
    return True


def check_test_scans(scans: EvaluationScans, run: RunFolder, *, allow_missing: bool) -> set[str]:
    """Return the names of the test cases. Raise an error if predictions of this run for them could not be scored."""
    trained_on = run.training_manifest()["store"]
    classes, channels = tuple(map(str, trained_on["classes"])), int(trained_on["channels"])
    files: dict[str, tuple[Path, ...]] = {}
    failures: dict[str, UserError] = {}
    if is_store(scans.images):
        names = _stored_cases(open_store(scans.images), classes, channels)
    else:
        cases, failures = scan_cases(scans.images, channels, run.training_case_names())
        files = {case.name: case.images for case in cases}
        names = files.keys() | failures.keys()
    images = {name: paths[0] for name, paths in files.items()}
    labels = by_nfc(references_in(scans.labels, names, images, dict(enumerate(classes))))
    complete = _with_both_files(scans, names, set(labels), allow_missing=allow_missing)
    if failures:
        raise failures[min(failures)]
    if files:
        # The number of channels in a file is known only after reading it, so the first case is read.
        first = files[min(files)]
        check_channels(first[0], len(read_case(first, channels).array), channels)

    def check(name: str) -> None:
        _check_case(files.get(name, ()), labels.get(nfc(name)), dict(enumerate(classes)), channels)

    in_parallel(check, sorted(complete | files.keys()), "Checking test scans")
    return complete


def _in_data_folder(data: Path) -> EvaluationScans:
    if is_store(data):
        return EvaluationScans(data, data)
    require_folder(data, DATA_REMEDY)
    if scans := _in_test_folders(data):
        return scans
    raise UserError(Code.NO_TEST_CASES, data, f"has no test scans with labels in {IMAGES}/ and {LABELS}/", DATA_REMEDY)


def _of_training_data(run: RunFolder) -> EvaluationScans:
    """Return the test scans in the folder that the run was trained on, or else the test scans of its store."""
    store = open_store(find_store(run, DATA_REMEDY))
    root = Path(store.root)
    if scans := _in_test_folders(root):
        return scans
    if not store.of("test"):
        folder = RunFolder(run.path.parent)
        more = f"{SCORED_BY_FOLDS} {quote(str(folder.path))}" if folder.folds_file.is_file() else FOLDS_REMEDY
        raise UserError(Code.NO_TEST_CASES, root, "no test scans with labels", f"{DATA_REMEDY}; {more}")
    return EvaluationScans(store.path, store.path)


def _in_test_folders(folder: Path) -> EvaluationScans | None:
    images, labels = folder / IMAGES, folder / LABELS
    return EvaluationScans(images, labels) if images.is_dir() and labels.is_dir() else None


def _stored_cases(store: Store, classes: tuple[str, ...], channels: int) -> set[str]:
    """Return the test cases of a store. Raise an error if its classes or channels differ from the run's."""
    if store.classes != classes:
        finding = f"its classes are {', '.join(store.classes)}, but the classes of the run are {', '.join(classes)}"
        raise UserError(Code.STORE_MISMATCH, store.path, finding, "give the store that the run was trained on")
    check_channels(store.path, store.channels, channels)
    return {case.name for case in store.of("test")}


def _with_both_files(scans: EvaluationScans, names: set[str], labels: set[str], *, allow_missing: bool) -> set[str]:
    """Return the cases with a scan and a label map. Other cases are an error unless ``allow_missing``."""
    complete = same_names(names, labels)
    if not complete:
        finding = f"none of its {len(labels)} label maps has the name of a scan in {scans.images}"
        remedy = "give the two files of a case the same name, without _0000 for labels"
        numbered = [CHANNEL.fullmatch(label) for label in labels]
        if all(match and match["case"] in names for match in numbered):
            remedy = f"exchange {scans.images.name} and {scans.labels.name} if they are swapped; otherwise {remedy}"
        raise UserError(Code.NO_TEST_CASES, scans.labels, finding, remedy)
    for folder, problem, unpaired in (
        (scans.images, "scan without a label map", names - complete),
        (scans.labels, "label map without a scan", labels - same_names(labels, names)),
    ):
        if unpaired and not allow_missing:
            finding = f"{min(unpaired)} is a {problem} of the same name ({len(unpaired)} in total)"
            remedy = "add the missing files, or skip these cases with --allow-missing"
            raise UserError(Code.FILE_MISSING, folder, finding, remedy)
    return complete


def _check_case(
    files: tuple[Path, ...], reference: Reference | None, classes: Mapping[int, str], channels: int
) -> None:
    """Raise an error if a scan header is unreadable, or if the label map has unknown values or another grid."""
    geometry = _common_geometry(files, channels) if files else None
    if reference is None:
        return
    label = _read_label(reference, files, channels)
    for line in guess_lines(label.guesses):
        logger.warning("%s", line)
    if geometry is not None and (difference := grid_difference(geometry, label.geometry)):
        finding = f"not on the grid of its scan {files[0].name}: {difference}"
        remedy = "resample the label map to its scan's grid; `graftseg check DATA` says whether --fix can correct it"
        raise UserError(Code.GEOMETRY_MISMATCH, reference.path, finding, remedy)
    check_label_values(reference.path, label.array, classes)


def _read_label(reference: Reference, files: tuple[Path, ...], channels: int) -> Scan:
    """Read a label map. Raise an error if it is an image, because the folders of scans and label maps are swapped."""
    try:
        label = reference.read()
    except UserError as error:
        if error.code is Code.LABEL_INVALID and files:
            refuse_image(reference.path, files[0], read_case(files, channels))
        raise
    if files and label.array.max() > GRAY_VALUES:
        refuse_many_values(reference.path, label, files[0], read_case(files, channels))
    return label


def _common_geometry(files: tuple[Path, ...], channels: int) -> Geometry:
    first = read_geometry(files[0], channels)
    for path in files[1:]:
        if difference := grid_difference(first, read_geometry(path, channels)):
            finding = f"its grid differs from {files[0].name}: {difference}"
            raise UserError(Code.GEOMETRY_MISMATCH, path, finding, "resample all channels of a case to one grid")
    return first
