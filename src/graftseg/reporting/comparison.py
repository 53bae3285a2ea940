"""This run beside another one, case by case."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graftseg.core.run_folder import RunFolder
from graftseg.evaluation import verdicts
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.verdicts import ONE_TRAINING
from graftseg.recipes.baseline import SUPERVISED
from graftseg.reporting.gaps import UNKNOWN, Gaps
from graftseg.reporting.markup import Html, missing, section, table, tag, told_above
from graftseg.reporting.palette import named
from graftseg.reporting.results import Results, fixed, mean, percent, read_results, used_checkpoint

TITLE = "Beside the baseline"
COLUMNS = ["labeled scans only", "with unlabeled scans"]
"""What a baseline and the run beside it were trained on."""
Scores = dict[str, float]


@dataclass(frozen=True)
class Told:
    """What a run says of itself, and its scores if it has been evaluated."""

    facts: dict[str, Any]
    results: Results | None


def told_of(run: RunFolder) -> Told:
    """Read both from the folder of a run."""
    return Told(run.manifest(), read_results(run.predictions))


def verdict_of(run: Told, baseline: Told | None) -> str | None:
    """What the unlabeled scans were worth, where that is what two evaluated runs differ in."""
    if baseline is None or run.results is None or baseline.results is None:
        return None
    return verdict_between(run.results.evaluation, baseline.results.evaluation) if _is_baseline(run, baseline) else None


def _is_baseline(run: Told, baseline: Told) -> bool:
    """Whether the unlabeled scans are what two runs differ in."""
    method, beside = (str(told.facts.get("method")) for told in (run, baseline))
    trained = [told.facts.get("store", {}).get("labeled") for told in (run, baseline)]
    return beside == SUPERVISED and method != SUPERVISED and trained[0] == trained[1]


def verdict_between(evaluation: Evaluation, baseline: Evaluation, trainings: str = ONE_TRAINING) -> str | None:
    """The same of two evaluations, as a sentence; None where they cannot be paired."""
    if not can_be_paired(evaluation, baseline):
        return None
    sentence = verdicts.verdict_between(baseline, evaluation, trainings)
    return sentence[0].upper() + sentence[1:] + "."


def missed(results: Results | None) -> Iterator[str]:
    """Classes that the run never finds, in sentences: their distances are large and mean nothing."""
    for sentence in () if results is None else verdicts.missed_classes("This run", results.evaluation):
        yield f"{sentence}."


def can_be_paired(first: Evaluation, second: Evaluation) -> bool:
    """Whether two evaluations have a case in common, scored by the same rule."""
    shared = {row.case for row in first.rows} & {row.case for row in second.rows}
    return bool(shared) and first.protocol == second.protocol


def comparison_section(run: Told, baseline: Told | None, gaps: Gaps = UNKNOWN) -> Html:
    """Mean Dice per class of both runs over the cases they share, the difference, and cases won and lost.

    ``gaps`` are those of the run, or of a baseline that was trained elsewhere.
    """
    if baseline is None or run.results is None or baseline.results is None:
        return section("comparison", TITLE, _nothing_beside(run, baseline, gaps))
    return section("comparison", TITLE, *_side_by_side(run, run.results, baseline, baseline.results))


def _nothing_beside(run: Told, baseline: Told | None, gaps: Gaps) -> Html:
    """Why there is nothing to compare, and what would give it unless the part on results says so."""
    if baseline is None and not gaps.by_test:
        return missing(gaps.why, *gaps.beside)
    if run.results is None:
        return told_above(gaps.why if baseline is None else "No prediction of this run has been evaluated.")
    return missing(gaps.why if baseline is None else "No prediction of the baseline has been evaluated.", *gaps.scores)


def _side_by_side(run: Told, results: Results, baseline: Told, other: Results) -> list[Html]:
    """A line for each class, and what makes the comparison less than fair."""
    names = {row.label: row.name for row in results.evaluation.rows}
    lines = [
        _line(named(label, name), _dice(other, label), _dice(results, label)) for label, name in sorted(names.items())
    ]
    if len(lines) > 1:
        lines.append(_line("mean", _dice(other, None), _dice(results, None)))
    titles = [_title(told.facts) for told in (baseline, run)]
    columns = COLUMNS if _is_baseline(run, baseline) else titles
    head = ["Class", *(f"{name}, Dice %" for name in columns), "Difference, points", "Won / lost / tied"]
    shared = _dice(results, None).keys() & _dice(other, None).keys()
    if not shared:
        return [missing("The two runs share no evaluated case.")]
    caption = f"Mean over the {len(shared)} cases that both runs were evaluated on"
    warnings = _warnings(results, other, len(shared))
    ours, theirs = used_checkpoint(results, run.facts), used_checkpoint(other, baseline.facts)
    if ours != theirs:
        warnings.append(tag("p", f"Checkpoints: {ours} here, {theirs} for the baseline.", class_="caption"))
    if columns is COLUMNS:
        recipes = f"Recipes: {columns[0]}, {titles[0]}; {columns[1]}, {titles[1]}."
        warnings.append(tag("p", recipes, class_="caption"))
    return [table(head, lines, caption=caption), *warnings]


def _title(facts: dict[str, Any]) -> str:
    return str(facts.get("recipe") or facts.get("method") or "run")


def _dice(results: Results, label: int | None) -> Scores:
    """Dice of each case: of one class, or with None the mean over the classes."""
    chosen: dict[str, list[float]] = {}
    for row in results.evaluation.rows:
        if label in (None, row.label):
            chosen.setdefault(row.case, []).append(row.dice)
    return {case: mean(values) for case, values in chosen.items()}


def _line(name: str, theirs: Scores, ours: Scores) -> list[str]:
    shared = sorted(ours.keys() & theirs.keys())
    before, after = mean([theirs[case] for case in shared]), mean([ours[case] for case in shared])
    won = sum(ours[case] > theirs[case] for case in shared)
    lost = sum(ours[case] < theirs[case] for case in shared)
    points = (after - before) * 100
    signed = tag("b", f"{'+' if points > 0 else ''}{fixed(points)}")
    return [name, percent(before), percent(after), signed, f"{won} / {lost} / {len(shared) - won - lost}"]


def _warnings(results: Results, other: Results, shared: int) -> list[Html]:
    """What makes the comparison less than fair."""
    found: list[str] = []
    apart = len(_dice(results, None)) + len(_dice(other, None)) - 2 * shared
    if apart:
        found.append(f"{apart} cases were evaluated in one run only and are left out.")
    if results.evaluation.protocol != other.evaluation.protocol:
        ours, theirs = results.evaluation.protocol, other.evaluation.protocol
        found.append(f"The protocols differ: {ours} here, {theirs} for the baseline.")
    return [tag("p", text, class_="caption") for text in found]
