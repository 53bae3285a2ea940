"""What the folds of a recipe say together, alone and beside those of its baseline."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.core.progress import in_parallel
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset, ScanFiles, label_path
from graftseg.data.layouts import read_layout
from graftseg.data.scans import Scan, grid_difference, read_label
from graftseg.data.scans_to_predict import scan_cases
from graftseg.data.sources import Data
from graftseg.data.store import Store
from graftseg.evaluation.cached_scores import find_cached_scores
from graftseg.evaluation.figures import DEVIATION, FIGURES, NO_VALUE, SHARES, Spread, format_value, spread
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import Reference, StoredLabel
from graftseg.evaluation.scores import Evaluation, Row, evaluate_pair
from graftseg.evaluation.statistics import effect_of, paired
from graftseg.evaluation.verdicts import SEVERAL_TRAININGS, missed_classes, verdict_between
from graftseg.inference.predict import predict_scans, select_weights

SHOWN = ("dice", "hd95")
MEAN = "mean"
HELD_OUT = "Held-out labeled cases"


@dataclass(frozen=True)
class CrossValidation:
    """Every labeled case scored once, by a network that never saw it, and the same for the baseline, if there is one.

    ``parts`` are the cases that each fold held out.
    """

    folder: Path
    parts: tuple[tuple[str, ...], ...]
    evaluation: Evaluation
    baseline: Evaluation | None = None

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Head and a line for each class and figure: mean and spread over the cases, and what the baseline has."""
        head = ("figure", "class", "cases", "mean ± spread over cases")
        if self.baseline is None:
            return head, [self._cells(figure, name) for figure in SHOWN for name in self._names]
        lines = []
        for pairs in paired(self.baseline, self.evaluation):
            if pairs.figure in SHOWN:
                effect = effect_of(pairs)
                interval = NO_VALUE if math.isnan(effect.low) else f"{effect.low:+.2f} to {effect.high:+.2f}"
                other = format_value(*_values(spread(pairs.first.tolist())))
                beside = (other, _signed(effect.difference), interval, f"{effect.better}/{effect.worse}/{effect.equal}")
                lines.append((*self._cells(pairs.figure, pairs.name), *beside))
        return (*head, "baseline", "difference", "95 % interval", "better/worse/equal"), lines

    def said(self) -> str:
        """What the figures are of, in one sentence."""
        cases = len({row.case for row in self.evaluation.rows})
        beside = "" if self.baseline is None else ", and once by a supervised one"
        scored = f"{cases} labeled cases, each scored once by a network that never saw it{beside}"
        return f"{self.folder}: {scored}; ± is the {DEVIATION}"

    def verdict(self) -> Iterator[str]:
        """What was found, in sentences: classes that are never found and, with a baseline, what was gained."""
        yield from missed_classes(str(self.folder), self.evaluation)
        if self.baseline is not None:
            yield from missed_classes(str(self.folder / "baseline"), self.baseline)
            yield f"{HELD_OUT}: {verdict_between(self.baseline, self.evaluation, SEVERAL_TRAININGS)}."

    def to_json(self) -> dict[str, Any]:
        """All figures as plain values, None for what does not exist."""
        told = {
            "cases": len({row.case for row in self.evaluation.rows}),
            "protocol": self.evaluation.protocol,
            "figures": _figures(self.evaluation),
        }
        if self.baseline is None:
            return told
        effects = {
            figure: {pairs.name: _plain(asdict(effect_of(pairs))) for pairs in found}
            for figure in FIGURES
            if (found := [pairs for pairs in paired(self.baseline, self.evaluation) if pairs.figure == figure])
        }
        return told | {"baseline": _figures(self.baseline), "beside_baseline": effects}

    @property
    def _names(self) -> list[str]:
        return _class_names(self.evaluation)

    def _cells(self, figure: str, name: str) -> tuple[str, ...]:
        values = _of_cases(self.evaluation, figure, name)
        unit = "%" if figure in SHARES else "voxel"
        return f"{FIGURES[figure]} {unit}", name, str(len(values)), format_value(*_values(spread(values)))


def _class_names(evaluation: Evaluation) -> list[str]:
    """Names of the classes by label, and last their mean where there are several."""
    names = [name for _, name in sorted({(row.label, row.name) for row in evaluation.rows})]
    return [*names, MEAN] if len(names) > 1 else names


def _of_cases(evaluation: Evaluation, figure: str, name: str) -> list[float]:
    """A figure of each case that has it, of a class or in the mean over its classes; overlaps in percent."""
    by_case: dict[str, list[float]] = {}
    for row in evaluation.rows:
        value = getattr(row, figure) * (100 if figure in SHARES else 1)
        if name in (row.name, MEAN) and not math.isnan(value):
            by_case.setdefault(row.case, []).append(value)
    return [math.fsum(values) / len(values) for _, values in sorted(by_case.items())]


def _figures(evaluation: Evaluation) -> dict[str, Any]:
    return {
        figure: {
            name: _plain({"cases": len(values), **asdict(spread(values))})
            for name in _class_names(evaluation)
            for values in [_of_cases(evaluation, figure, name)]
        }
        for figure in FIGURES
    }


def _values(one: Spread) -> tuple[float, float]:
    return one.mean, one.std


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}


def _signed(value: float) -> str:
    return NO_VALUE if math.isnan(value) else f"{value:+.2f}"


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
    known = {nfc(case.name): case for case in dataset.of("labeled")}
    if missing := [name for name in cases if nfc(name) not in known]:
        finding = f"case {missing[0]}, with which the run began, has no label here"
        raise UserError(Code.RECIPE_MISMATCH, str(data), finding, "give the same --data")
    used = {name: known[nfc(name)] for name in cases}
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
    folder, weights = run.predictions, select_weights(run, "shipped").sha256
    known = find_cached_scores(folder, weights, references.source, PROTOCOL, held_out, len(store.classes))
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
