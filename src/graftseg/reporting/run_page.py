"""The page of a run: one self-contained HTML file."""

from pathlib import Path

from graftseg.core.run_folder import RunFolder
from graftseg.recipes.baseline import existing_baselines
from graftseg.reporting.cases import cases_section
from graftseg.reporting.comparison import EvaluatedRun, baseline_dice, comparison_section, missed, verdict_of
from graftseg.reporting.facts import case_counts, channels_of, notes_section, provenance_of, run_facts, run_section
from graftseg.reporting.folder import class_names, read_curves, read_recipe, read_store, snapshot_paths
from graftseg.reporting.folds_page import render_folds
from graftseg.reporting.gallery import Gallery, mixed_section, watched_section
from graftseg.reporting.missing import Commands, commands_for
from graftseg.reporting.notices import network_note, notices_of
from graftseg.reporting.orientation import orientation_of
from graftseg.reporting.pictures import Album
from graftseg.reporting.rendering import render, run_title, write_page
from graftseg.reporting.results import read_results, results_section, used_checkpoint
from graftseg.reporting.training import training_section

CONTENTS = {
    "results": "Results",
    "cases": "Cases",
    "comparison": "Baseline",
    "training": "Training",
    "mixed": "Training images",
    "pseudo-labels": "Pseudo-labels",
    "run": "Run",
    "notes": "Notes",
}
STATES = {
    "running": "This run has not finished. The page shows its progress so far.",
    "stopped": "This run was stopped before it finished.",
    "failed": "This run failed before it finished.",
}


def render_report(run: Path, out: Path | None = None, *, baseline: Path | None = None, has_links: bool = False) -> Path:
    """Write the report of a run folder and return its path, by default ``run/report.html``.

    ``baseline`` is another run folder for comparison. A part without data says why it is empty. The output is
    deterministic. If ``run`` contains folds, the page describes the cross-validation, and ``baseline`` is not used.
    ``has_links`` links each case to the viewer that serves the page.
    """
    folder = RunFolder(run)
    if folder.folds_file.is_file():
        return render_folds(folder, out)
    evaluated, log, snapshots = EvaluatedRun.load(folder), read_curves(folder), snapshot_paths(folder)
    evaluated_baseline = None if baseline is None else EvaluatedRun.load(RunFolder(baseline))
    facts, results = evaluated.facts, evaluated.results
    recipe, store = read_recipe(folder), read_store(folder)
    evaluation = None if results is None else results.evaluation
    has_volumes = None if evaluation is None else evaluation.has_volumes
    orientation = orientation_of(recipe, store, has_volumes, channels_of(facts) or 1)
    gallery = Gallery(class_names(facts), Album(), orientation)
    names = provenance_of(store, results)
    of_baseline = baseline_dice(
        results,
        None
        if evaluated_baseline is None or evaluated_baseline.results is None
        else evaluated_baseline.results.evaluation,
    )
    own_baseline = read_results(folder.baseline.predictions)
    network = (
        ""
        if evaluation is None
        else network_note(folder, evaluation, None if own_baseline is None else own_baseline.evaluation)
    )
    sections = [
        results_section(results, facts, commands_for(folder).scores, names.scans, of_baseline, has_links, network),
        cases_section(results, gallery, baseline=of_baseline),
        comparison_section(evaluated, evaluated_baseline, _comparison_commands(folder, baseline)),
        training_section(log, facts),
        mixed_section(snapshots, log, gallery),
        watched_section(snapshots, gallery),
        run_section(recipe, run_facts([facts], names)),
        notes_section(facts, evaluation, used_checkpoint(results, facts)),
    ]
    verdicts, state = (
        [verdict_of(evaluated, evaluated_baseline), *missed(results)],
        STATES.get(str(facts.get("status", "")), ""),
    )
    counts, notices = case_counts(facts), notices_of(folder)
    summary = render("run_summary", verdicts=verdicts, facts=facts, counts=counts, state=state, notices=notices)
    version = facts.get("versions", {}).get("graftseg", "")
    footer = f"Trained with graftseg {version}. This page is self-contained and loads no other files."
    title, target = run_title(facts, names.data), out or run / "report.html"
    return write_page(target, "graftseg report", title, summary, CONTENTS, sections, footer)


def _comparison_commands(run: RunFolder, baseline: Path | None) -> Commands:
    """Return the commands that fill the comparison section."""
    # the commands for a run also test its baselines, but not a baseline in another folder
    tested_too = [existing.path.resolve() for existing in existing_baselines(run)]
    return commands_for(run if baseline is None or baseline.resolve() in tested_too else RunFolder(baseline))
