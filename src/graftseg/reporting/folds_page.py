"""The page of a cross-validation, in which every labeled case is scored by a network that was not trained on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_object
from graftseg.core.run_folder import RunFolder, held_out_by_fold
from graftseg.evaluation.scores import Evaluation, read_csv
from graftseg.evaluation.table_metrics import DEVIATION
from graftseg.evaluation.verdicts import SEVERAL_RUNS, UnlabeledUse
from graftseg.reporting.cases import Predicted, cases_section, predicted_in
from graftseg.reporting.comparison import baseline_dice, can_be_paired, missed, verdict_sentence
from graftseg.reporting.facts import case_span, channels_of, notes_section, provenance_of, run_facts, run_section
from graftseg.reporting.folder import class_names, read_curves, read_recipe, read_store
from graftseg.reporting.gallery import Gallery
from graftseg.reporting.missing import BASELINE_UNFINISHED, NO_BASELINE, Missing, baseline_for
from graftseg.reporting.notices import network_note, notices_of
from graftseg.reporting.orientation import orientation_of
from graftseg.reporting.pictures import Album
from graftseg.reporting.rendering import render, run_title, write_page
from graftseg.reporting.results import (
    Results,
    case_dice,
    mean,
    read_results,
    results_section,
    scores_view,
    unit_of,
    used_checkpoint,
)
from graftseg.reporting.text import typeset
from graftseg.reporting.training import fold_curves_section
from graftseg.training.cross_validation import HELD_OUT, CrossValidation
from graftseg.training.unlabeled_use import unlabeled_use

CONTENTS = {
    "results": "Results",
    "cases": "Cases",
    "comparison": "Baseline",
    "folds": "Folds",
    "training": "Training",
    "test": "Test scans",
    "run": "Run",
    "notes": "Notes",
}
COLUMNS = {"mean ± spread over cases": "with unlabeled scans", "baseline": "labeled scans only"}  # titles on the page
UNUSED_COLUMNS = {"mean ± spread over cases": "this run"}


def render_folds(run: RunFolder, out: Path | None = None) -> Path:
    """Write the page of a folder of folds and return its path, by default ``report.html`` in this folder."""
    description, parts = read_object(run.folds_file), held_out_by_fold(run)
    results = read_results(run.path)
    missing = [run.fold(number).path for number in range(len(parts)) if not run.fold(number).exists]
    if results is None or missing:
        finding, remedy = "not every fold has been trained and scored", "resume the training with --resume"
        raise UserError(Code.RUN_UNFINISHED, missing[0] if missing else run.path, finding, remedy)
    baseline = run.baseline.path / "metrics.csv"
    baseline_scores = read_csv(baseline) if baseline.is_file() else None
    folds = [run.fold(number).manifest() for number in range(len(parts))]
    facts = folds[0] | {"checkpoint": read_object(run.path / "metrics.json").get("checkpoint", "last")}
    recipe, store = read_recipe(run), read_store(run.fold(0))
    tested, tested_baseline = read_results(run.predictions), read_results(run.baseline.predictions)
    orientation = orientation_of(recipe, store, results.evaluation.has_volumes, channels_of(facts) or 1)
    names = provenance_of(store, tested)
    trained = (
        f"each fold trained with {case_span(folds, 'labeled')} labeled and {case_span(folds, 'unlabeled')} unlabeled "
        f"cases, seed {description.get('seed', 'unknown')}."
    )
    sections = {
        "results": results_section(
            results,
            facts,
            baseline=baseline_dice(results, baseline_scores),
            network=network_note(run, results.evaluation, baseline_scores),
        ),
        "cases": _cases(run, parts, results, baseline_scores, Gallery(class_names(facts), Album(), orientation)),
        "comparison": _comparison(run, CrossValidation(run.path, (), results.evaluation, baseline_scores)),
        "folds": _folds(parts, results.evaluation, folds),
        "training": fold_curves_section([read_curves(run.fold(number)) for number in range(len(parts))]),
        "test": _test(run, tested, tested_baseline, len(parts), names.scans),
        "run": run_section(recipe, run_facts(folds, names, parts)),
        "notes": notes_section(facts, results.evaluation, folds=trained),
    }
    use = unlabeled_use(run)
    verdicts = [_verdict(HELD_OUT, results.evaluation, baseline_scores, use), *missed(results)]
    if tested is not None and tested_baseline is not None:
        verdicts.append(_verdict("Test scans", tested.evaluation, tested_baseline.evaluation, use))
    counts: dict[str, Any] = {"cases": len(case_dice(results.evaluation)), "folds": len(parts)}
    summary = render("fold_summary", verdicts=verdicts, description=description, notices=notices_of(run), **counts)
    title = f"{run_title(facts, names.data)}, {len(parts)} folds"
    contents = {identity: name for identity, name in CONTENTS.items() if sections[identity]}
    footer = "This page is self-contained and loads no other files."
    target = out or run.path / "report.html"
    return write_page(target, "graftseg report", title, summary, contents, sections.values(), footer)


def _verdict(cases: str, evaluation: Evaluation, baseline: Evaluation | None, use: UnlabeledUse) -> str | None:
    """Return a sentence on the benefit of the unlabeled scans for a group of cases."""
    verdict = None if baseline is None else verdict_sentence(baseline, evaluation, SEVERAL_RUNS, use)
    return f"{cases}: {verdict[0].lower()}{verdict[1:]}" if verdict else None


def _cases(
    run: RunFolder, parts: Sequence[tuple[str, ...]], results: Results, baseline: Evaluation | None, gallery: Gallery
) -> Markup:
    """Render cases of all folds, each predicted by the network that was not trained on it."""
    held_out: dict[str, Predicted] = {}
    for number, part in enumerate(parts):
        of_fold = read_results(run.fold(number).predictions)
        if of_fold is not None:
            held_out |= predicted_in(of_fold, part, f"held out of fold {number}")
    return cases_section(results, gallery, held_out, baseline_dice(results, baseline))


def _comparison(run: RunFolder, result: CrossValidation) -> Markup:
    """Render the comparison with a baseline trained on the same folds without unlabeled scans."""
    if result.baseline is None:
        sentence = BASELINE_UNFINISHED if run.baseline.folds_file.is_file() else NO_BASELINE
        return render("fold_comparison", empty=Missing(sentence, *baseline_for(run)))
    return render("fold_comparison", deviation=DEVIATION, **_table(result, unlabeled_use(run)))


def _table(result: CrossValidation, use: UnlabeledUse) -> dict[str, Any]:
    """Return the head and the rows of the comparison with the baseline."""
    head, rows = result.table()
    unit = unit_of(result.evaluation)
    cells = [[typeset(cell) for cell in (row[0].replace("voxel", unit), *row[1:])] for row in rows]
    columns = UNUSED_COLUMNS if use.is_supervised_only else COLUMNS
    return {"columns": [columns.get(name, name) for name in head], "lines": cells}


def _folds(parts: Sequence[tuple[str, ...]], evaluation: Evaluation, folds: Sequence[dict[str, Any]]) -> Markup:
    """Render the held-out cases, the score and the training time of each fold."""
    dice, total = case_dice(evaluation), sum(map(len, parts))
    scores = [mean([dice[case] for case in part if case in dice]) for part in parts]
    seconds = [facts.get("wall_seconds") for facts in folds]
    return render("folds", total=total, folds=[*zip(parts, scores, seconds, strict=True)])


def _test(run: RunFolder, tested: Results | None, baseline: Results | None, count: int, scans: str) -> Markup:
    """Render the scores of the ensemble of all folds on test scans, or nothing if it was not tested."""
    if tested is None:
        return Markup()
    comparison, use = None, unlabeled_use(run)
    network = network_note(run, tested.evaluation, None if baseline is None else baseline.evaluation)
    if baseline is not None and can_be_paired(tested.evaluation, baseline.evaluation):
        compared = CrossValidation(tested.folder, (), tested.evaluation, baseline.evaluation)
        comparison = _table(compared, use)
    scores = scores_view(tested.evaluation, used_checkpoint(tested, {}))
    return render("test_scans", count=count, scans=scans, scores=scores, comparison=comparison, network=network)
