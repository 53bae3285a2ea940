"""The page of a run: one self-contained HTML file without scripts."""

from pathlib import Path
from typing import Any

from markupsafe import Markup

from graftseg.core.durations import duration
from graftseg.core.files import write_text
from graftseg.core.run_folder import RunFolder
from graftseg.recipes.baseline import existing_baselines
from graftseg.reporting.cases import cases_section
from graftseg.reporting.comparison import EvaluatedRun, comparison_section, missed, verdict_of
from graftseg.reporting.facts import case_counts, channels_of, run_facts
from graftseg.reporting.folder import class_names, read_curves, read_recipe, read_store, snapshot_paths
from graftseg.reporting.folds_page import render_folds
from graftseg.reporting.gallery import mixed_section, watched_section
from graftseg.reporting.gaps import Gaps, gaps_of
from graftseg.reporting.notes import notes_section, run_section
from graftseg.reporting.orientation import orientation_of
from graftseg.reporting.page import document, run_title
from graftseg.reporting.pictures import Album
from graftseg.reporting.provenance import provenance_of
from graftseg.reporting.rendering import render
from graftseg.reporting.results import results_section, used_checkpoint
from graftseg.reporting.text import typeset
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
    "running": "This run has not finished; the page shows its progress so far.",
    "stopped": "This run was stopped before it finished.",
    "failed": "This run failed before it finished.",
}


def render_report(run: Path, out: Path | None = None, *, baseline: Path | None = None) -> Path:
    """Write the report of a run folder and return its path, ``run/report.html`` if ``out`` is None.

    ``baseline`` is another run folder to compare with. Parts without data state why they are empty. The same run
    folder gives the same bytes. A folder of folds has a page of its own, which compares with the folds' own baseline.
    """
    folder = RunFolder(run)
    if folder.folds_file.is_file():
        return render_folds(folder, out)
    this, log, snapshots, album = EvaluatedRun.load(folder), read_curves(folder), snapshot_paths(folder), Album()
    other = None if baseline is None else EvaluatedRun.load(RunFolder(baseline))
    facts, results, classes = this.facts, this.results, class_names(this.facts)
    recipe, store, gaps = read_recipe(folder), read_store(folder), gaps_of(folder)
    evaluation = None if results is None else results.evaluation
    has_volumes = None if evaluation is None else evaluation.has_volumes
    orientation = orientation_of(recipe, store, has_volumes, channels_of(facts) or 1)
    names = provenance_of(store, results)
    sections = [
        results_section(results, facts, gaps.scores, names.scans),
        cases_section(results, classes, album, orientation),
        comparison_section(this, other, _comparison_gaps(folder, baseline)),
        training_section(log, facts),
        mixed_section(snapshots, log, classes, album, orientation),
        watched_section(snapshots, classes, album, orientation),
        run_section(recipe, run_facts(facts, names.data, names.scans)),
        notes_section(facts, evaluation, used_checkpoint(results, facts)),
    ]
    target, summary = out or run / "report.html", _summary(facts, [verdict_of(this, other), *missed(results)])
    version = facts.get("versions", {}).get("graftseg", "")
    footer = f"Trained with graftseg {version}. This page is self-contained and loads nothing."
    title = run_title(facts, names.data)
    write_text(target, document("graftseg report", title, summary, CONTENTS, sections, footer))
    return target


def _comparison_gaps(run: RunFolder, baseline: Path | None) -> Gaps:
    """Return the gaps of a baseline from elsewhere, else of the run: a test of a run also scores its own baseline."""
    own = [one.path.resolve() for one in existing_baselines(run)]
    return gaps_of(run if baseline is None or baseline.resolve() in own else RunFolder(baseline))


def _summary(facts: dict[str, Any], verdicts: list[str | None]) -> Markup:
    """Render the verdicts, the size of the training and its state."""
    parts = [case_counts(facts)]
    if facts.get("steps") is not None:
        parts.append(f"{facts['steps']:,} steps")
    if facts.get("wall_seconds") is not None:
        parts.append(f"{duration(float(facts['wall_seconds']))} on {facts.get('device', 'an unknown device')}")
    parts.append(f"seed {facts.get('seed', 'unknown')}")
    return render(
        "summary",
        verdicts=[typeset(verdict) for verdict in verdicts if verdict],
        subtitles=[", ".join(parts)],
        state=STATES.get(str(facts.get("status", "")), ""),
    )
