"""How well the run segments: headline figures, each class, each case."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftseg.core.files import read_object
from graftseg.evaluation.figures import DEVIATION, FIGURES, SHARES, VOLUME_COLUMNS
from graftseg.evaluation.scores import Evaluation, Row, read_csv
from graftseg.reporting.gaps import TEST, Remedy
from graftseg.reporting.markup import Html, join, missing, section, table, tag
from graftseg.reporting.palette import named

FLATTERED = "Selected on the test cases: an optimistic figure."


@dataclass(frozen=True)
class Results:
    """Scores of the label maps in a folder; ``references`` is where the labels they were held against lie."""

    folder: Path
    evaluation: Evaluation
    references: Path | None

    @property
    def ranking(self) -> list[str]:
        """Cases from the worst mean Dice to the best; equal ones by name."""
        scores = case_dice(self.evaluation)
        return sorted(scores, key=lambda case: (scores[case], case))


def on_test(checkpoint: str) -> bool:
    """Whether a checkpoint, in the words of the run, was selected on the test cases."""
    return checkpoint.startswith("best on test")


def used_checkpoint(results: Results | None, facts: dict[str, Any]) -> str:
    """The checkpoint that the figures are of: the predictions know best, the run's own words stand in for them."""
    manifest = None if results is None else results.folder / "manifest.json"
    content = read_object(manifest) if manifest is not None and manifest.is_file() else {}
    return str(content.get("checkpoint") or facts.get("checkpoint", "last"))


def read_results(folder: Path) -> Results | None:
    """The scores in a folder of predictions, or None where nothing has been evaluated."""
    if not (folder / "metrics.csv").is_file():
        return None
    described = folder / "metrics.json"
    about = read_object(described) if described.is_file() else {}
    references = about.get("references")
    return Results(folder, read_csv(folder / "metrics.csv"), None if references is None else folder / str(references))


def case_dice(evaluation: Evaluation) -> dict[str, float]:
    """Mean Dice over the classes of each case."""
    return {case: mean([row.dice for row in rows]) for case, rows in _by_case(evaluation).items()}


def results_section(results: Results | None, facts: dict[str, Any], remedy: Remedy = TEST, scans: str = "") -> Html:
    """Headline figures, then a table of the classes and one of the cases, worst first; or what would give them.

    ``scans`` names where the scans that were scored come from, if that is known.
    """
    if results is None:
        return section("results", "Results", missing("No prediction of this run has been evaluated.", *remedy))
    return section(
        "results",
        "Results",
        headline(results.evaluation, used_checkpoint(results, facts)),
        *([tag("p", f"Test scans: {scans}.", class_="caption")] if scans else []),
        class_table(results.evaluation),
        _case_table(results),
    )


def mean(values: Sequence[float]) -> float:
    """Mean of the values that are not NaN; NaN if there is none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def percent(value: float) -> str:
    """A share in percent, two decimals."""
    return fixed(value * 100)


def fixed(value: float) -> str:
    """Two decimals; a dash where there is no value."""
    return "–" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def protocol_sentence(evaluation: Evaluation, checkpoint: str) -> str:
    """How the figures were averaged, under which protocol, and from which checkpoint."""
    cases, classes = len(_by_case(evaluation)), len({row.label for row in evaluation.rows})
    over = f"mean over {_count(cases, 'case')}"
    if classes > 1:
        over = f"mean over {classes} classes of the {over}"
    named = "last checkpoint" if checkpoint == "last" else f"checkpoint: {checkpoint}"
    return f"{over[0].upper()}{over[1:]}, {evaluation.protocol} protocol, {named}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def headline(evaluation: Evaluation, checkpoint: str) -> Html:
    """The four figures over all cases and classes, and what they are of."""
    overall, unit = evaluation.summary().overall, unit_of(evaluation)
    also = {name: f"{fixed(overall[f'{name}_mm'])} mm" if evaluation.has_spacing else "" for name in ("hd95", "asd")}
    tiles = [
        _tile("Dice", percent(overall["dice"]), "%"),
        _tile("Jaccard", percent(overall["jaccard"]), "%"),
        _tile(FIGURES["hd95"], fixed(overall["hd95"]), unit, also["hd95"]),
        _tile(FIGURES["asd"], fixed(overall["asd"]), unit, also["asd"]),
    ]
    return join(
        [
            tag("dl", *tiles, class_="tiles"),
            tag("p", protocol_sentence(evaluation, checkpoint), class_="caption"),
            *([tag("p", FLATTERED, class_="state")] if on_test(checkpoint) else []),
        ]
    )


def _tile(name: str, value: str, unit: str, also: str = "") -> Html:
    figure = tag("dd", value, tag("small", f" {unit}"))
    return tag("div", tag("dt", name), figure, *([tag("dd", also, class_="also")] if also else []))


def class_table(evaluation: Evaluation) -> Html:
    """Mean and deviation of every figure for each class."""
    distances = {f"{FIGURES[name]} {unit}": metric for name, unit, metric in _distances(evaluation)}
    shown = {f"{FIGURES[name]} %": name for name in SHARES} | distances
    shown |= VOLUME_COLUMNS if evaluation.has_volumes else {}
    head, metrics = ["Class", *shown], list(shown.values())
    summary = evaluation.summary()
    rows: list[list[str]] = []
    for one in summary.classes:
        cells = [_spread(one.metrics[metric].mean, one.metrics[metric].std, metric) for metric in metrics]
        rows.append([named(one.label, one.name), *cells])
    if len(rows) > 1:
        rows.append(["mean", *(_written(summary.overall.get(metric, math.nan), metric) for metric in metrics)])
    return table(head, rows, caption=f"Each class: mean ± {DEVIATION}")


def unit_of(evaluation: Evaluation) -> str:
    """What distances without a spacing are counted in."""
    return "voxel" if evaluation.has_volumes else "pixel"


def _distances(evaluation: Evaluation) -> Iterator[tuple[str, str, str]]:
    """Figure, unit and metric of the distances, in millimetres too where those say other than voxels."""
    for name in ("hd95", "asd"):
        yield name, unit_of(evaluation), name
        if evaluation.has_spacing:
            yield name, "mm", f"{name}_mm"


def _case_table(results: Results) -> Html:
    cases = _by_case(results.evaluation)
    names = {row.label: row.name for row in results.evaluation.rows}
    single = [] if len(names) == 1 else [named(label, name) for label, name in sorted(names.items())]
    unit = unit_of(results.evaluation)
    head = ["Case", "Dice %", *single, "Jaccard %", f"{FIGURES['hd95']} {unit}", f"{FIGURES['asd']} {unit}"]
    rows = [[case, *_case_cells(cases[case], sorted(names) if single else [])] for case in results.ranking]
    caption = "Each case, worst first: mean over classes" + (", and the Dice of each class" if single else "")
    return table(head, rows, caption=caption, class_="figures cases")


def _case_cells(rows: Sequence[Row], labels: Sequence[int]) -> list[str]:
    dice, by_label = mean([row.dice for row in rows]), {row.label: row.dice for row in rows}
    return [
        join([tag("span", tag("i", style=f"width:{dice:.2%}"), class_="meter"), percent(dice)]),
        *(percent(by_label.get(label, math.nan)) for label in labels),
        percent(mean([row.jaccard for row in rows])),
        fixed(mean([row.hd95 for row in rows])),
        fixed(mean([row.asd for row in rows])),
    ]


def _by_case(evaluation: Evaluation) -> dict[str, list[Row]]:
    cases: dict[str, list[Row]] = {}
    for row in evaluation.rows:
        cases.setdefault(row.case, []).append(row)
    return cases


def _written(value: float, metric: str) -> str:
    return percent(value) if metric in ("dice", "jaccard") else fixed(value)


def _spread(value: float, deviation: float, metric: str) -> Html:
    spread = [] if math.isnan(deviation) else [tag("small", f" ± {_written(deviation, metric)}")]
    return join([_written(value, metric), *spread])
