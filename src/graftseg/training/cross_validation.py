"""Scores of the held-out cases of all folds, compared with a baseline if there is one."""

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
from graftseg.core.tasks import LOCAL, Executor
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset, ScanFiles, label_path
from graftseg.data.layouts import read_layout
from graftseg.data.scans import grid_difference, read_label
from graftseg.data.scans_to_predict import scan_cases
from graftseg.data.sources import Data
from graftseg.data.store import Store
from graftseg.evaluation.evaluate import evaluate_pair, find_cached_scores
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import Reference, stored_reference
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.evaluation.statistics import effect_of, paired
from graftseg.evaluation.table_metrics import (
    DEVIATION,
    METRIC_NAMES,
    OVERLAPS,
    format_difference,
    format_interval,
    plain_values,
    spread,
)
from graftseg.evaluation.verdicts import SEVERAL_RUNS, missed_classes, verdict_between
from graftseg.inference.ensemble import EXACT, select_weights
from graftseg.inference.predict_tasks import predict_in_tasks
from graftseg.inference.prediction_settings import PredictionSettings
from graftseg.training.unlabeled_use import unlabeled_use

TABLE_METRICS = ("dice", "hd95")
MEAN = "mean"
HELD_OUT = "Held-out labeled cases"
PROTOCOL: Protocol = "standard"  # rule for scores of empty label maps


@dataclass(frozen=True)
class CrossValidation:
    """Scores of all labeled cases, each predicted by a network that never saw it.

    ``parts`` lists the held-out cases of each fold. ``baseline`` has the scores of the baseline, if there is one.
    """

    folder: Path
    parts: tuple[tuple[str, ...], ...]
    evaluation: Evaluation
    baseline: Evaluation | None = None

    def table(self, unit: str = "voxel") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return column titles and one row per metric and class, with additional columns if there is a baseline.

        ``unit`` is the name of the unit of distances.
        """
        head = ("metric", "class", "cases", "mean ± spread over cases")
        if self.baseline is None:
            names = _class_names(self.evaluation)
            return head, [self._cells(metric, name, unit) for metric in TABLE_METRICS for name in names]
        lines = []
        for pairs in paired(self.baseline, self.evaluation):
            if pairs.metric in TABLE_METRICS:
                effect = effect_of(pairs)
                interval, other = format_interval(effect.low, effect.high), str(spread(pairs.first.tolist()))
                counts = f"{effect.better}/{effect.worse}/{effect.equal}"
                own = self._cells(pairs.metric, pairs.name, unit)
                lines.append((*own, other, format_difference(effect.difference), interval, counts))
        return (*head, "baseline", "difference", "95 % interval", "better/worse/equal"), lines

    def caption(self) -> str:
        """Return one sentence about the table."""
        cases = len({row.case for row in self.evaluation.rows})
        baseline = "" if self.baseline is None else ", and once by a supervised network that never saw it"
        scored = f"{cases} labeled cases, each scored once by a network that never saw it{baseline}"
        return f"{self.folder}: {scored}; ± is the {DEVIATION}"

    def verdict(self) -> Iterator[str]:
        """Yield sentences about classes that no prediction contains and, with a baseline, about the gain over it."""
        yield from missed_classes(str(self.folder), self.evaluation)
        if self.baseline is not None:
            yield from missed_classes(str(self.folder / "baseline"), self.baseline)
            use = unlabeled_use(RunFolder(self.folder))
            yield f"{HELD_OUT}: {verdict_between(self.baseline, self.evaluation, SEVERAL_RUNS, use)}."

    def to_json(self) -> dict[str, Any]:
        """Return all metrics as plain values; undefined values are None."""
        facts = {
            "cases": len({row.case for row in self.evaluation.rows}),
            "protocol": self.evaluation.protocol,
            "figures": _spread_over_cases(self.evaluation),
        }
        if self.baseline is None:
            return facts
        effects: dict[str, dict[str, Any]] = {}
        for pairs in paired(self.baseline, self.evaluation):
            effects.setdefault(pairs.metric, {})[pairs.name] = plain_values(asdict(effect_of(pairs)))
        return facts | {"baseline": _spread_over_cases(self.baseline), "beside_baseline": effects}

    def _cells(self, metric: str, name: str, unit: str) -> tuple[str, ...]:
        values = _case_values(self.evaluation, metric, name)
        title = f"{METRIC_NAMES[metric]} {'%' if metric in OVERLAPS else unit}"
        return title, name, str(len(values)), str(spread(values))


def _class_names(evaluation: Evaluation) -> list[str]:
    """Return class names in label order, followed by ``mean`` if there are several classes."""
    names = [name for _, name in sorted({(row.label, row.name) for row in evaluation.rows})]
    return [*names, MEAN] if len(names) > 1 else names


def _case_values(evaluation: Evaluation, metric: str, name: str) -> list[float]:
    """Return a value per case for a class or the mean of classes, without NaN values. Overlaps are in percent."""
    by_case: dict[str, list[float]] = {}
    for row in evaluation.rows:
        value = getattr(row, metric) * (100 if metric in OVERLAPS else 1)
        if name in (row.name, MEAN) and not math.isnan(value):
            by_case.setdefault(row.case, []).append(value)
    return [math.fsum(values) / len(values) for _, values in sorted(by_case.items())]


def _spread_over_cases(evaluation: Evaluation) -> dict[str, Any]:
    return {
        metric: {
            name: plain_values({"cases": found.count, "mean": found.mean, "std": found.std})
            for name in _class_names(evaluation)
            for found in [spread(_case_values(evaluation, metric, name))]
        }
        for metric in METRIC_NAMES
    }


@dataclass(frozen=True)
class References:
    """Reference label maps by case. Labels are in the folder or store ``source``, and scans are in ``images``."""

    source: Path
    labels: Mapping[str, Reference]
    images: Path


def references_of(data: Data, store: Store, cases: Sequence[str]) -> References:
    """Return the reference label maps of labeled cases, from a folder of scans or from a store.

    Raise a UserError for a store with resampled labels, because scores need the original labels.
    """
    if data.resolve() == store.path.resolve():
        remedy = "pass the folder of scans as --data, or add --folds 0"
        stored = {case.name: case for case in store.of("labeled")}
        return References(
            store.path, {name: stored_reference(store, stored[name], remedy) for name in cases}, store.path
        )
    dataset = read_layout(data)
    known = {nfc(case.name): case for case in dataset.of("labeled")}
    if missing := [name for name in cases if nfc(name) not in known]:
        finding = f"the run was started with the labeled case {missing[0]}, which is missing or has no label"
        raise UserError(Code.RUN_MISMATCH, str(data), finding, "pass the same --data")
    used = {name: known[nfc(name)] for name in cases}
    labels = _folder([label_path(case) for case in used.values()]) or dataset.root
    references = {name: Reference(label_path(case), partial(dataset.reader.label, case)) for name, case in used.items()}
    return References(labels, references, _images(dataset, used, store))


def _images(dataset: Dataset, cases: Mapping[str, Case], store: Store) -> Path:
    """Return the folder of the scans if it contains every case under the same name as in the store, else the store."""
    folder = _folder([path for case in cases.values() for path in case.images])
    if folder is None or not isinstance(dataset.reader, ScanFiles):
        return store.path
    known = [case.name for case in store.cases]
    found = {case.name: case.images for case in scan_cases(folder, store.channels, known)[0]}
    return folder if all(found.get(name) == case.images for name, case in cases.items()) else store.path


def _folder(files: Sequence[Path]) -> Path | None:
    """Return the folder that contains all files, or None if the files are in several folders."""
    folders = {file.parent for file in files}
    return folders.pop() if len(folders) == 1 else None


def held_out_scores(
    run: RunFolder,
    store: Store,
    held_out: Sequence[str],
    references: References,
    device: torch.device,
    executor: Executor = LOCAL,
) -> Evaluation:
    """Return the scores of a run on its held-out cases, from the cache or from new predictions by ``executor``."""
    folder, weights = run.predictions, select_weights(run, "shipped").sha256
    known = find_cached_scores(folder, weights, references.source, PROTOCOL, held_out, len(store.classes))
    if known is not None:
        return known
    device = device if executor is LOCAL else executor.choose_device(device.type)
    settings = PredictionSettings([EXACT], only=tuple(held_out))
    predicted = predict_in_tasks(run, references.images, folder, device, settings, executor)
    if predicted.failures:
        raise predicted.failures[0]
    classes = dict(enumerate(store.classes))
    score = partial(_score, folder=folder, references=references, classes=classes)
    rows = in_parallel(score, sorted(held_out), "Scoring held-out cases")
    evaluation = Evaluation(tuple(row for of_case in rows for row in of_case), PROTOCOL)
    write_scores(evaluation, folder, references)
    return evaluation


def write_scores(evaluation: Evaluation, folder: Path, references: References, checkpoint: str | None = None) -> None:
    """Write ``metrics.csv`` and its description. ``checkpoint`` is a phrase for the checkpoint that predicted."""
    about = {"references": str(references.source.resolve())}
    evaluation.save(folder / "metrics.csv", about | ({"checkpoint": checkpoint} if checkpoint else {}))


def _score(case: str, *, folder: Path, references: References, classes: Mapping[int, str]) -> list[Row]:
    prediction, reference = folder / f"{case}.nii.gz", references.labels[case]
    predicted, expected = read_label(prediction), reference.read()
    if difference := grid_difference(predicted.geometry, expected.geometry):
        finding = f"the label map is not on the grid of its scan: {difference}"
        raise UserError(Code.GEOMETRY_MISMATCH, reference.path, finding, "resample the label map to the scan's grid")
    return evaluate_pair(case, predicted.array, expected.array, predicted.geometry, classes, PROTOCOL)
