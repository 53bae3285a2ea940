"""The scores of a run on the cases that it was not trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.names import spelled
from graftseg.core.progress import in_parallel
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset, ScanFiles, label_path
from graftseg.data.layouts import read_layout
from graftseg.data.scans import Scan, grid_difference, read_label
from graftseg.data.scans_to_predict import scan_cases
from graftseg.data.sources import Data
from graftseg.data.store import Store
from graftseg.evaluation.cached_scores import known_scores
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import Reference, StoredLabel
from graftseg.evaluation.scores import Evaluation, Row, evaluate_pair
from graftseg.inference.predict import predict_scans, weights_of

PROTOCOL: Protocol = "standard"


@dataclass(frozen=True)
class CaseLabel:
    """The label map of a case as its data set has it."""

    dataset: Dataset
    case: Case

    @property
    def path(self) -> Path:
        """The file it lies in."""
        return label_path(self.case)

    def read(self) -> Scan:
        """Read it through the data set's reader."""
        return self.dataset.reader.label(self.case)


@dataclass(frozen=True)
class References:
    """Label maps to score against, by case, the folder or store that they come from, and that of the images."""

    source: Path
    labels: Mapping[str, Reference]
    images: Path


def references_of(data: Data, store: Store, cases: Sequence[str]) -> References:
    """What an expert drew for these labeled cases: the files of a folder of scans, or a store's labels.

    A store whose labels were resampled is refused, for they are not what was drawn any more.
    """
    if data.resolve() == store.path.resolve():
        return References(store.path, {name: _stored(store, name) for name in cases}, store.path)
    dataset = read_layout(data)
    known = {spelled(case.name): case for case in dataset.of("labeled")}
    if missing := [name for name in cases if spelled(name) not in known]:
        finding = f"case {missing[0]}, with which the run began, has no label here"
        raise UserError(Code.RECIPE_MISMATCH, str(data), finding, "give the same --data")
    used = {name: known[spelled(name)] for name in cases}
    labels = _folder([label_path(case) for case in used.values()]) or dataset.root
    return References(
        labels, {name: CaseLabel(dataset, case) for name, case in used.items()}, _images(dataset, used, store)
    )


def _images(dataset: Dataset, cases: Mapping[str, Case], store: Store) -> Path:
    """Where cases are predicted from: the folder of their scans, or the store where that names them otherwise."""
    folder = _folder([path for case in cases.values() for path in case.images])
    if folder is None or not isinstance(dataset.reader, ScanFiles):
        return store.path
    known = [case.name for case in store.cases]
    found = {case.name: case.images for case in scan_cases(folder, store.channels, known)[0]}
    return folder if all(found.get(name) == case.images for name, case in cases.items()) else store.path


def _folder(files: Sequence[Path]) -> Path | None:
    """The one folder that holds all of these files, if there is one."""
    folders = {file.parent for file in files}
    return folders.pop() if len(folders) == 1 else None


def _stored(store: Store, name: str) -> StoredLabel:
    case = next(case for case in store.of("labeled") if case.name == name)
    if case.grid.prepared_shape != case.grid.oriented_shape:
        finding = f"its labels were resampled (case {name}) and are not those of the scans"
        raise UserError(
            Code.RECIPE_MISMATCH, store.path, finding, "give the folder of scans as --data, or add --folds 0"
        )
    return StoredLabel(store, case)


def held_out_scores(
    run: RunFolder, store: Store, held_out: Sequence[str], references: References, device: torch.device
) -> Evaluation:
    """The scores of a run on these cases, made where they are not there yet; kept beside its label maps."""
    folder, weights = run.predictions, weights_of(run, "shipped").sha256
    known = known_scores(folder, weights, references.source, PROTOCOL, held_out, len(store.classes))
    if known is not None:
        return known
    predicted = predict_scans(run, references.images, folder, device, only=held_out)
    if predicted.failures:
        raise predicted.failures[0]
    classes = dict(enumerate(store.classes))
    score = partial(_score, folder=folder, references=references, classes=classes)
    rows = in_parallel(score, sorted(held_out), "Scoring held-out cases")
    evaluation = Evaluation(tuple(row for of_case in rows for row in of_case), PROTOCOL)
    keep_scores(evaluation, folder, references)
    return evaluation


def keep_scores(evaluation: Evaluation, folder: Path, references: References, checkpoint: str | None = None) -> None:
    """Write ``metrics.csv`` and what says where it comes from."""
    about = {"references": str(references.source.resolve())}
    evaluation.keep(folder / "metrics.csv", about | ({"checkpoint": checkpoint} if checkpoint else {}))


def _score(case: str, *, folder: Path, references: References, classes: Mapping[int, str]) -> list[Row]:
    prediction, reference = folder / f"{case}.nii.gz", references.labels[case]
    predicted, expected = read_label(prediction), reference.read()
    if difference := grid_difference(predicted.geometry, expected.geometry):
        finding = f"not on the grid of its scan: {difference}"
        raise UserError(Code.RECIPE_MISMATCH, reference.path, finding, "bring label map and scan to one grid")
    return evaluate_pair(case, predicted.array, expected.array, predicted.geometry, classes, PROTOCOL)
