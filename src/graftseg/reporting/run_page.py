"""The page of a run: one self-contained HTML file."""

from pathlib import Path

from graftseg.core.run_folder import RunFolder
from graftseg.recipes.baseline import existing_baselines
from graftseg.reporting.cases import cases_section
from graftseg.reporting.comparison import EvaluatedRun, baseline_dice, comparison_section, missed_classes, verdict_of
from graftseg.reporting.facts import case_counts, channels_of, provenance_of, run_facts, run_section
from graftseg.reporting.folds_page import render_folds
from graftseg.reporting.gallery import Gallery, mixed_section, watched_section
from graftseg.reporting.missing import commands_for
from graftseg.reporting.notes import notes_section
from graftseg.reporting.notices import network_note, notices_of
from graftseg.reporting.orientation import orientation_of
from graftseg.reporting.pictures import Album
from graftseg.reporting.rendering import SELF_CONTAINED, render, run_title, write_page
from graftseg.reporting.results import read_results, results_section, used_checkpoint
from graftseg.reporting.run_files import class_names, read_curves, read_recipe, read_store, snapshot_paths
from graftseg.reporting.training import training_section


def render_report(run: Path, out: Path | None = None, *, baseline: Path | None = None, has_links: bool = False) -> Path:
    """Write the report of a run folder and return its path, by default ``run/report.html``.

    A section without data says why it is empty. The output is deterministic.

    baseline: the folder of another run to compare with; not used if ``run`` is a cross-validation
    has_links: whether cases link to the viewer, which must serve the page
    """
    folder = RunFolder(run)
    if folder.folds_file.is_file():
        return render_folds(folder, out, has_links=has_links)
    evaluated, log, snapshots = EvaluatedRun.load(folder), read_curves(folder), snapshot_paths(folder)
    evaluated_baseline = None if baseline is None else EvaluatedRun.load(RunFolder(baseline))
    facts, results = evaluated.facts, evaluated.results
    evaluation = results.evaluation if results else None
    dice_of_baseline = baseline_dice(results, evaluated_baseline.results if evaluated_baseline else None)
    recipe, store = read_recipe(folder), read_store(folder)
    has_volumes = evaluation.has_volumes if evaluation else None
    gallery = Gallery(class_names(facts), Album(), orientation_of(recipe, store, has_volumes, channels_of(facts) or 1))
    provenance = provenance_of(store, results)
    network = network_note(folder, results, read_results(folder.baseline.predictions))
    remedy = commands_for(folder).scores
    # the commands for a run also test its own baselines, but not a baseline in another folder
    own_baselines = [existing.path.resolve() for existing in existing_baselines(folder)]
    compared = folder if baseline is None or baseline.resolve() in own_baselines else RunFolder(baseline)
    sections = [
        results_section(results, facts, remedy, provenance.scans, dice_of_baseline, has_links, network),
        cases_section(results, gallery, baseline=dice_of_baseline),
        comparison_section(evaluated, evaluated_baseline, commands_for(compared)),
        training_section(log, facts),
        mixed_section(snapshots, log, gallery),
        watched_section(snapshots, gallery),
        run_section(recipe, run_facts([facts], provenance)),
    ]
    sections.append(notes_section(facts, evaluation, used_checkpoint(results, facts), sections=sections))
    verdicts = [verdict_of(evaluated, evaluated_baseline), *missed_classes(results)]
    counts, notices = case_counts(facts), notices_of(folder)
    summary = render("run_summary", verdicts=verdicts, facts=facts, counts=counts, notices=notices)
    footer = f"Trained with graftseg {facts.get('versions', {}).get('graftseg', '')}. {SELF_CONTAINED}"
    title, target = run_title(facts, provenance.data), out or run / "report.html"
    return write_page(target, "graftseg report", title, summary, sections, footer)
