"""A run folder as one self-contained html page that needs no network and no script."""

from pathlib import Path

from graftseg.core.files import write_text
from graftseg.core.run_folder import RunFolder
from graftseg.recipes.baseline import existing_baselines
from graftseg.reporting.cases import cases_section
from graftseg.reporting.comparison import Told, comparison_section, missed, told_of, verdict_of
from graftseg.reporting.folder import class_names, read_curves, read_recipe, read_store, snapshot_paths
from graftseg.reporting.folds import render_folds
from graftseg.reporting.gallery import mixed_section, watched_section
from graftseg.reporting.gaps import Gaps, gaps_of
from graftseg.reporting.notes import channels_of, notes_section, run_facts, run_section
from graftseg.reporting.orientation import orientation_of
from graftseg.reporting.page import page
from graftseg.reporting.pictures import Album
from graftseg.reporting.provenance import provenance_of
from graftseg.reporting.results import read_results, results_section, used_checkpoint
from graftseg.reporting.training import training_section

__all__ = ["render_report"]


def render_report(run: Path, out: Path | None = None, *, baseline: Path | None = None) -> Path:
    """Write the report of a run folder and return its path, ``run/report.html`` if ``out`` is None.

    ``baseline`` is another run folder to stand beside this one. A part that the run does not hold becomes a
    sentence that says so. The same run folder gives the same bytes. Folds have a page of their own, beside their own
    baseline.
    """
    folder = RunFolder(run)
    if folder.folds_file.is_file():
        return render_folds(folder, out)
    facts, log, snapshots, album = folder.manifest(), read_curves(folder), snapshot_paths(folder), Album()
    results, classes = read_results(folder.predictions), class_names(facts)
    told, other = Told(facts, results), None if baseline is None else told_of(RunFolder(baseline))
    gaps, recipe = gaps_of(folder), read_recipe(folder)
    store = read_store(folder)
    has_volumes = None if results is None else results.evaluation.has_volumes
    lie = orientation_of(recipe, store, has_volumes, channels_of(facts) or 1)
    named = provenance_of(store, results)
    sections = [
        results_section(results, facts, gaps.scores, named.scans),
        cases_section(results, classes, album, lie),
        comparison_section(told, other, _gaps_beside(folder, baseline)),
        training_section(log, facts),
        mixed_section(snapshots, log, classes, album, lie),
        watched_section(snapshots, classes, album, lie),
        run_section(recipe, run_facts(facts, named.data, named.scans)),
        notes_section(facts, results.evaluation if results is not None else None, used_checkpoint(results, facts)),
    ]
    target = out or run / "report.html"
    write_text(target, page(facts, sections, [verdict_of(told, other), *missed(results)], named.data))
    return target


def _gaps_beside(run: RunFolder, baseline: Path | None) -> Gaps:
    """What gives the scores that a comparison lacks: a test of the run scores its own baseline too."""
    is_other = baseline is not None and baseline.resolve() not in [
        one.path.resolve() for one in existing_baselines(run)
    ]
    return gaps_of(RunFolder(baseline)) if baseline is not None and is_other else gaps_of(run)
