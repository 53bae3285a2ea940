"""The folds of a recipe as one page: every labeled case, scored by a network that never saw it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_object, write_text
from graftseg.core.run_folder import RunFolder, held_out_by_fold
from graftseg.evaluation.figures import DEVIATION
from graftseg.evaluation.scores import Evaluation, read_csv
from graftseg.evaluation.verdicts import SEVERAL_TRAININGS
from graftseg.reporting.cases import Predicted, cases_section, predicted_in
from graftseg.reporting.comparison import can_be_paired, missed, verdict_between
from graftseg.reporting.fold_facts import fold_facts, span
from graftseg.reporting.folder import class_names, read_curves, read_recipe, read_store
from graftseg.reporting.gaps import ALONE, BEGUN, baseline_for
from graftseg.reporting.markup import Html, missing, section, table, tag, typeset
from graftseg.reporting.notes import channels_of, duration, notes_section, run_section
from graftseg.reporting.orientation import Orientation, orientation_of
from graftseg.reporting.page import document, run_title, verdicts
from graftseg.reporting.pictures import Album
from graftseg.reporting.provenance import provenance_of
from graftseg.reporting.results import (
    Results,
    case_dice,
    class_table,
    headline,
    mean,
    percent,
    read_results,
    results_section,
    unit_of,
    used_checkpoint,
)
from graftseg.reporting.training import fold_curves_section
from graftseg.training.cross_validation import HELD_OUT, CrossValidation

UNSEEN = "Every labeled case was scored once, by a network that saw neither its label nor its image."
SHARED = (
    "The interval is over cases. Networks of different folds share most of their training cases, so it says less of "
    "what other labeled cases would give."
)
COLUMNS = {"mean ± spread over cases": "with unlabeled scans", "baseline": "labeled scans only"}
BESIDE = f"The same folds trained on the labeled scans alone, case by case; ± is the {DEVIATION}"


def render_folds(run: RunFolder, out: Path | None = None) -> Path:
    """Write the page of a folder of folds and return its path, ``report.html`` in that folder if ``out`` is None."""
    told, parts = read_object(run.folds_file), held_out_by_fold(run)
    results = read_results(run.path)
    if results is None:
        raise UserError(
            Code.RUN_UNFINISHED, run.path, "not every fold has been trained and scored", "go on with train --resume"
        )
    baseline = run.baseline.path / "metrics.csv"
    other = read_csv(baseline) if baseline.is_file() else None
    folds = [run.fold(number).manifest() for number in range(len(parts))]
    facts = folds[0] | {"checkpoint": read_object(run.path / "metrics.json").get("checkpoint", "last")}
    recipe = read_recipe(run)
    tested, tested_other = read_results(run.predictions), read_results(run.baseline.predictions)
    store = read_store(run.fold(0))
    lie = orientation_of(recipe, store, results.evaluation.has_volumes, channels_of(facts) or 1)
    named = provenance_of(store, tested)
    sections = {
        "results": ("Results", results_section(results, facts)),
        "cases": ("Cases", _cases(run, parts, results, class_names(facts), lie)),
        "comparison": ("Baseline", _comparison(run, CrossValidation(run.path, (), results.evaluation, other))),
        "folds": ("Folds", _folds(parts, results.evaluation, folds)),
        "training": ("Training", fold_curves_section([read_curves(run.fold(number)) for number in range(len(parts))])),
        "test": ("Test scans", _test(tested, tested_other, len(parts), named.scans)),
        "run": ("Run", run_section(recipe, fold_facts(folds, parts, named))),
        "notes": ("Notes", notes_section(facts, results.evaluation, others=_notes(folds, told))),
    }
    shown = {identity: part for identity, part in sections.items() if part[1]}
    labeled, unlabeled = len(case_dice(results.evaluation)), told.get("unlabeled", "some")
    about = f"{labeled} labeled cases in {len(parts)} folds, {unlabeled} unlabeled ones"
    head = [
        *verdicts([_verdict(HELD_OUT, results, other), *missed(results)]),
        *verdicts([_verdict("Test scans", tested, tested_other)]),
        tag("p", f"{about}, seed {told.get('seed', 'unknown')}", class_="subtitle"),
        tag("p", UNSEEN, class_="subtitle"),
    ]
    page = document(
        "graftseg report",
        f"{run_title(facts, named.data)}, {len(parts)} folds",
        head,
        {identity: name for identity, (name, _) in shown.items()},
        [part for _, part in shown.values()],
        "This page holds everything it shows and loads nothing.",
    )
    target = out or run.path / "report.html"
    write_text(target, page)
    return target


def _verdict(where: str, results: Results | None, other: Results | Evaluation | None) -> str | None:
    """What the unlabeled scans were worth on some cases."""
    beside = other.evaluation if isinstance(other, Results) else other
    said = None if results is None or beside is None else verdict_between(results.evaluation, beside, SEVERAL_TRAININGS)
    return f"{where}: {said[0].lower()}{said[1:]}" if said else None


def _cases(
    run: RunFolder, parts: Sequence[tuple[str, ...]], results: Results, classes: Sequence[str], lie: Orientation
) -> Html:
    """The worst cases, the median one and the best over all folds, each as the network that never saw it had it."""
    held_out: dict[str, Predicted] = {}
    for number, part in enumerate(parts):
        of_fold = read_results(run.fold(number).predictions)
        if of_fold is not None:
            held_out |= predicted_in(of_fold, part, f"held out of fold {number}")
    return cases_section(results, classes, Album(), lie=lie, predicted=held_out)


def _comparison(run: RunFolder, result: CrossValidation) -> Html:
    """What the unlabeled scans gained over the same folds without them."""
    title = "Beside the baseline"
    if result.baseline is None:
        sentence = BEGUN if run.baseline.folds_file.is_file() else ALONE
        return section("comparison", title, missing(sentence, *baseline_for(run)))
    return section("comparison", title, _beside(result, BESIDE), tag("p", SHARED, class_="caption"))


def _beside(result: CrossValidation, caption: str) -> Html:
    """The table of both, in the words and signs of the page."""
    head, rows = result.table()
    cells = [[typeset(cell) for cell in row] for row in rows]
    for row in cells:
        row[0] = row[0].replace("voxel", unit_of(result.evaluation))
    return table([COLUMNS.get(name, name) for name in head], cells, caption=caption)


def _folds(parts: Sequence[tuple[str, ...]], evaluation: Evaluation, folds: Sequence[dict[str, Any]]) -> Html:
    """What each fold held out, how its network did there and how long it was trained."""
    dice = case_dice(evaluation)
    rows = [
        [
            str(number),
            str(sum(map(len, parts)) - len(part)),
            ", ".join(part),
            percent(mean([dice[case] for case in part if case in dice])),
            "–" if facts.get("wall_seconds") is None else duration(float(facts["wall_seconds"])),
        ]
        for number, (part, facts) in enumerate(zip(parts, folds, strict=True))
    ]
    head = ["Fold", "Trained on", "Held out", "Dice %", "Time"]
    return section("folds", "Folds", table(head, rows, caption="Each fold"))


def _test(tested: Results | None, baseline: Results | None, count: int, scans: str) -> Html:
    """How the networks of all folds do together on test scans; nothing where none were tested."""
    if tested is None:
        return Html("")
    scans = f" ({scans})" if scans else ""
    sentence = (
        f"Label maps by the mean of the networks of all {count} folds, on scans that were named as test scans{scans}."
    )
    figures = headline(tested.evaluation, used_checkpoint(tested, {}))
    parts = [tag("p", sentence), figures, class_table(tested.evaluation)]
    if baseline is not None and can_be_paired(tested.evaluation, baseline.evaluation):
        caption = f"The same folds trained on the labeled scans alone; ± is the {DEVIATION}"
        both = CrossValidation(tested.folder, (), tested.evaluation, baseline.evaluation)
        parts.append(_beside(both, caption))
    return section("test", "Test scans", *parts)


def _notes(folds: Sequence[dict[str, Any]], told: dict[str, Any]) -> dict[str, str]:
    """What the notes say of the data and of what is one and what several."""
    labeled, unlabeled = (
        span([len(facts.get("store", {}).get(kind, [])) for facts in folds]) for kind in ("labeled", "unlabeled")
    )
    seed = told.get("seed", "unknown")
    return {
        "±": f"the {DEVIATION}.",
        "Data": f"each fold trained with {labeled} labeled and {unlabeled} unlabeled cases, seed {seed}.",
        "One run": "one division into folds and a single seed; another one gives other figures.",
    }
