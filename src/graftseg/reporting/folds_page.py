"""The page of a cross-validation, and the page of several methods that were cross-validated on the same folds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_object
from graftseg.core.run_folder import RunFolder, held_out_by_fold
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.verdicts import SEVERAL_RUNS, verdict_between
from graftseg.reporting.cases import ReportedCase, cases_section, reported_cases
from graftseg.reporting.comparison import baseline_dice, can_be_paired, missed_classes
from graftseg.reporting.facts import case_span, channels_of, fold_facts, provenance_of, run_section
from graftseg.reporting.gallery import Gallery
from graftseg.reporting.missing import BASELINE_UNFINISHED, NO_BASELINE, Missing, baseline_remedy
from graftseg.reporting.notes import notes_section
from graftseg.reporting.notices import network_note, notices_of
from graftseg.reporting.orientation import orientation_of
from graftseg.reporting.pictures import Album
from graftseg.reporting.rendering import SELF_CONTAINED, render, run_title, write_page
from graftseg.reporting.results import Results, case_dice, mean, read_results, results_section, scores_view, unit_of
from graftseg.reporting.run_files import class_names, read_curves, read_recipe, read_store
from graftseg.reporting.text import typeset
from graftseg.reporting.training import fold_curves_section
from graftseg.training.cross_validation import HELD_OUT, CrossValidation
from graftseg.training.unlabeled_use import unlabeled_use

COLUMNS = {"mean ± spread over cases": "with unlabeled scans", "baseline": "labeled scans only"}
"""Column titles on the page, by title of the column in the terminal."""
COLUMNS_WITHOUT_UNLABELED = {"mean ± spread over cases": "this run"}


def render_folds(run: RunFolder, out: Path | None = None, *, has_links: bool = False) -> Path:
    """Write the page of a cross-validation, with the options of ``render_report``, and return its path."""
    held_out, results = held_out_by_fold(run), read_results(run.path)
    folds = [run.fold(number) for number in range(len(held_out))]
    untrained = [fold.path for fold in folds if not fold.exists]
    if results is None or untrained:
        finding, remedy = "not every fold has been trained and scored", "resume the training with --resume"
        raise UserError(Code.RUN_UNFINISHED, untrained[0] if untrained else run.path, finding, remedy)
    baseline = read_results(run.baseline.path)
    dice_of_baseline = baseline_dice(results, baseline)
    manifests = [fold.manifest() for fold in folds]
    facts = manifests[0] | {"checkpoint": read_object(run.path / "metrics.json").get("checkpoint", "last")}
    recipe, store = read_recipe(run), read_store(folds[0])
    tested, tested_baseline = read_results(run.predictions), read_results(run.baseline.predictions)
    orientation = orientation_of(recipe, store, results.evaluation.has_volumes, channels_of(facts) or 1)
    gallery, names = Gallery(class_names(facts), Album(), orientation), provenance_of(store, tested)
    network = network_note(run, results, baseline)
    description = read_object(run.folds_file)
    counts = " and ".join(f"{case_span(manifests, kind)} {kind}" for kind in ("labeled", "unlabeled"))
    trained = f"each fold trained with {counts} cases, seed {description.get('seed', 'unknown')}."
    sections = [
        results_section(results, facts, baseline=dice_of_baseline, has_links=has_links, network=network),
        cases_section(results, gallery, _cases_of_folds(run, held_out), dice_of_baseline),
        _comparison(run, CrossValidation(run.path, (), results.evaluation, baseline.evaluation if baseline else None)),
        _folds(held_out, results.evaluation, manifests),
        fold_curves_section([read_curves(fold) for fold in folds]),
        _test_scans(run, tested, tested_baseline, len(held_out), names.scans),
        run_section(recipe, fold_facts(manifests, names, held_out)),
    ]
    sections.append(notes_section(facts, results.evaluation, folds=trained, sections=sections))
    verdicts = [_verdict(run, HELD_OUT, results, baseline), *missed_classes(results)]
    verdicts.append(_verdict(run, "Test scans", tested, tested_baseline))
    view: dict[str, Any] = {"cases": len(case_dice(results.evaluation)), "folds": len(held_out)}
    view |= {"verdicts": verdicts, "description": description, "notices": notices_of(run)}
    title, target = f"{run_title(facts, names.data)}, {len(held_out)} folds", out or run.path / "report.html"
    return write_page(target, "graftseg report", title, render("fold_summary", **view), sections, SELF_CONTAINED)


def render_methods(run: RunFolder, head: Sequence[str], rows: Sequence[Sequence[str]], verdicts: Sequence[str]) -> Path:
    """Write ``report.html`` of a comparison, and of the folds of each method. Each row begins with a method."""
    for method, *_ in rows:
        render_folds(RunFolder(run.path / method))
    summary = render("method_summary", verdicts=verdicts)
    table = render("methods", columns=head, lines=rows)
    title = f"{len(rows)} methods with the same training time"
    footer = "The table is self-contained. The links lead to the pages of the methods in this folder."
    return write_page(run.path / "report.html", "graftseg train --compare", title, summary, [table], footer)


def _verdict(run: RunFolder, cases: str, results: Results | None, baseline: Results | None) -> str | None:
    """Return a sentence on the benefit of the unlabeled scans for a group of cases, or None without a comparison."""
    if results is None or baseline is None or not can_be_paired(baseline.evaluation, results.evaluation):
        return None
    return f"{cases}: {verdict_between(baseline.evaluation, results.evaluation, SEVERAL_RUNS, unlabeled_use(run))}."


def _cases_of_folds(run: RunFolder, held_out: Sequence[tuple[str, ...]]) -> dict[str, ReportedCase]:
    """Return the cases of all folds, each predicted by the network that was not trained on it."""
    reported: dict[str, ReportedCase] = {}
    for number, cases in enumerate(held_out):
        fold_results = read_results(run.fold(number).predictions)
        if fold_results is not None:
            reported |= reported_cases(fold_results, cases, f"held out of fold {number}")
    return reported


def _comparison(run: RunFolder, result: CrossValidation) -> Markup:
    """Render the comparison with a baseline trained on the same folds without unlabeled scans."""
    if result.baseline is None:
        sentence = BASELINE_UNFINISHED if run.baseline.folds_file.is_file() else NO_BASELINE
        return render("fold_comparison", empty=Missing(sentence, *baseline_remedy(run)))
    return render("fold_comparison", comparison=_table(run, result))


def _table(run: RunFolder, result: CrossValidation) -> dict[str, Any]:
    """Return the head and the rows of the comparison with the baseline."""
    head, rows = result.table(unit_of(result.evaluation))
    cells = [[typeset(cell) for cell in row] for row in rows]
    columns = COLUMNS_WITHOUT_UNLABELED if unlabeled_use(run).is_supervised_only else COLUMNS
    return {"columns": [columns.get(name, name) for name in head], "lines": cells}


def _folds(held_out: Sequence[tuple[str, ...]], evaluation: Evaluation, manifests: Sequence[dict[str, Any]]) -> Markup:
    """Render the held-out cases, the score and the training time of each fold."""
    dice, total = case_dice(evaluation), sum(map(len, held_out))
    scores = [mean([dice[case] for case in cases if case in dice]) for cases in held_out]
    seconds = [facts.get("wall_seconds") for facts in manifests]
    return render("folds", total=total, folds=[*zip(held_out, scores, seconds, strict=True)])


def _test_scans(run: RunFolder, tested: Results | None, baseline: Results | None, count: int, scans: str) -> Markup:
    """Render the scores of the ensemble of all folds on test scans, or nothing if it was not tested."""
    if tested is None:
        return Markup()
    comparison, scores, network = None, scores_view(tested, {}), network_note(run, tested, baseline)
    if baseline is not None and can_be_paired(tested.evaluation, baseline.evaluation):
        comparison = _table(run, CrossValidation(tested.folder, (), tested.evaluation, baseline.evaluation))
    return render("test_scans", count=count, scans=scans, scores=scores, comparison=comparison, network=network)
