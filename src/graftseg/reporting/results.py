"""The scores of a run: the headline, a table of classes and a table of cases."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from graftseg.core.files import read_object
from graftseg.core.predictions import read_manifest
from graftseg.core.run_folder import selected_on
from graftseg.evaluation.scores import Evaluation, Row, read_csv
from graftseg.evaluation.table_metrics import METRIC_NAMES, OVERLAPS, VOLUME_COLUMNS
from graftseg.reporting.missing import TEST_COMMAND, Missing, Remedy
from graftseg.reporting.rendering import render

DISTANCES = ("hd95", "asd")
NOT_EVALUATED = "This run has not been evaluated."


@dataclass(frozen=True)
class Results:
    """Scores of the label maps in a folder. ``references`` is the location of the reference labels."""

    folder: Path
    evaluation: Evaluation
    references: Path | None

    @property
    def ranking(self) -> list[str]:
        """Return the cases, sorted from the worst to the best mean Dice and then by name."""
        scores = case_dice(self.evaluation)
        return sorted(scores, key=lambda case: (scores[case], case))


@dataclass(frozen=True)
class UsedCheckpoint:
    """How the evaluated checkpoint was selected, and on which cases: ``validation``, ``test`` or None for none."""

    text: str = "last"
    selected_on: str | None = None


LAST_CHECKPOINT = UsedCheckpoint()


def used_checkpoint(results: Results | None, facts: dict[str, Any]) -> UsedCheckpoint:
    """Return the evaluated checkpoint from the manifest of the predictions or, without a manifest, from the run."""
    manifest = None if results is None else read_manifest(results.folder, "predict again")
    used = vars(manifest) if manifest is not None and manifest.checkpoint else facts
    return UsedCheckpoint(str(used.get("checkpoint", "last")), selected_on(used))


def read_results(folder: Path) -> Results | None:
    """Load the scores in a folder of predictions, or return None if nothing has been evaluated."""
    if not (folder / "metrics.csv").is_file():
        return None
    description = folder / "metrics.json"
    references = read_object(description).get("references") if description.is_file() else None
    return Results(folder, read_csv(folder / "metrics.csv"), None if references is None else folder / str(references))


def case_dice(evaluation: Evaluation) -> dict[str, float]:
    """Return the mean Dice over the classes of each case."""
    return {case: mean([row.dice for row in rows]) for case, rows in _by_case(evaluation).items()}


def mean(values: Sequence[float]) -> float:
    """Return the mean of the values that are not NaN, or NaN without such values."""
    finite = [value for value in values if not math.isnan(value)]
    return fmean(finite) if finite else math.nan


def unit_of(evaluation: Evaluation) -> str:
    """Return the unit of distances that are not in mm: voxels of volumes, or pixels of 2-D images."""
    return "voxel" if evaluation.has_volumes else "pixel"


def results_section(
    results: Results | None,
    facts: dict[str, Any],
    remedy: Remedy = TEST_COMMAND,
    scans: str = "",
    baseline: Mapping[str, float] | None = None,
    has_links: bool = False,
    network: str = "",
) -> Markup:
    """Render the headline, a table of classes and a table of cases, worst first.

    ``remedy`` is the command to show if there are no scores, ``scans`` is the name of the test scans, ``baseline`` is
    the Dice of the baseline by case, and ``network`` is a sentence on the network that ``predict`` uses. With
    ``has_links``, cases link to the viewer.
    """
    if results is None:
        return render("results", empty=Missing(NOT_EVALUATED, *remedy))
    scores = scores_view(results, facts)
    cases = _cases_view(results, baseline)
    return render("results", scores=scores, scans=scans, has_links=has_links, network=network, **cases)


def scores_view(results: Results, facts: dict[str, Any]) -> dict[str, Any]:
    """Collect the values of the headline and of the table of classes, whose ``columns`` are titles by metric."""
    evaluation = results.evaluation
    columns = {name: f"{METRIC_NAMES[name]} %" for name in OVERLAPS} | _distance_columns(evaluation)
    if evaluation.has_volumes:
        columns |= {metric: title for title, metric in VOLUME_COLUMNS.items()}
    cases, summary, unit = len(_by_case(evaluation)), evaluation.summary(), unit_of(evaluation)
    view = {"evaluation": evaluation, "checkpoint": used_checkpoint(results, facts), "summary": summary}
    return view | {"cases": cases, "unit": unit, "columns": columns}


def _distance_columns(evaluation: Evaluation) -> dict[str, str]:
    """Return the column titles of distances, by metric. Include mm only if they differ from voxels."""
    columns = {}
    for name in DISTANCES:
        columns[name] = f"{METRIC_NAMES[name]} {unit_of(evaluation)}"
        if evaluation.has_spacing:
            columns[f"{name}_mm"] = f"{METRIC_NAMES[name]} mm"
    return columns


def _cases_view(results: Results, baseline: Mapping[str, float] | None) -> dict[str, Any]:
    """Collect the table of cases. With several classes, it also contains the Dice of each class."""
    by_case, distances = _by_case(results.evaluation), _distance_columns(results.evaluation)
    names = sorted({row.label: row.name for row in results.evaluation.rows}.items())
    classes = names if len(names) > 1 else []
    cases = []
    for case in results.ranking:
        dice = {row.label: row.dice for row in by_case[case]}
        class_dice = [dice.get(label, math.nan) for label, _ in classes]
        means = {name: mean([getattr(row, name) for row in by_case[case]]) for name in (*OVERLAPS, *distances)}
        baseline_dice = [] if baseline is None else [baseline.get(case, math.nan)]
        cases.append({"name": case, "baseline": baseline_dice, "classes": class_dice, "means": means})
    return {"case_classes": classes, "distances": distances, "cases": cases, "has_baseline": baseline is not None}


def _by_case(evaluation: Evaluation) -> dict[str, list[Row]]:
    cases: dict[str, list[Row]] = {}
    for row in evaluation.rows:
        cases.setdefault(row.case, []).append(row)
    return cases
