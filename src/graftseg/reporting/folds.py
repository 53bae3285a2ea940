"""The folds of a recipe as one page: every labeled case, scored by a network that never saw it."""

from collections.abc import Sequence
from pathlib import Path

from graftseg.ensembles import held_out_of
from graftseg.errors import UserError
from graftseg.evaluation import Evaluation, read_csv
from graftseg.files import read_object, write_text
from graftseg.fold_results import CrossValidation
from graftseg.reporting.folder import read_recipe
from graftseg.reporting.markup import Html, missing, section, table, tag
from graftseg.reporting.notes import notes_section, run_section
from graftseg.reporting.page import document, run_title
from graftseg.reporting.results import case_dice, mean, percent, read_results, results_section
from graftseg.runs import RunFolder

CONTENTS = {"results": "Results", "comparison": "Baseline", "folds": "Folds", "run": "Run", "notes": "Notes"}
UNSEEN = "Every labeled case was scored once, by a network that saw neither its label nor its image."
SHARED = (
    "The interval is over cases. Networks of different folds share most of their training cases, so it says less of "
    "what other labeled cases would give."
)


def render_folds(run: RunFolder, out: Path | None = None) -> Path:
    """Write the page of a folder of folds and return its path, ``report.html`` in that folder if ``out`` is None."""
    told, parts = read_object(run.folds_file), held_out_of(run)
    results = read_results(run.path)
    if results is None:
        raise UserError(run.path, "not every fold has been trained and scored", "go on with train --resume")
    baseline = run.baseline.path / "metrics.csv"
    other = read_csv(baseline) if baseline.is_file() else None
    facts = run.fold(0).manifest() | {"checkpoint": read_object(run.path / "metrics.json").get("checkpoint", "last")}
    count = len(parts)
    sections = [
        results_section(results, facts),
        _comparison(CrossValidation(run.path, (), results.evaluation, other)),
        _folds(parts, results.evaluation),
        run_section(facts, read_recipe(run)),
        notes_section(facts, results.evaluation),
    ]
    labeled, unlabeled = len(case_dice(results.evaluation)), told.get("unlabeled", "some")
    about = f"{labeled} labeled cases in {count} folds, {unlabeled} unlabeled ones"
    head = [
        tag("p", f"{about}, seed {told.get('seed', 'unknown')}", class_="subtitle"),
        tag("p", UNSEEN, class_="subtitle"),
    ]
    footer = "This page holds everything it shows and loads nothing."
    target = out or run.path / "report.html"
    write_text(
        target, document("graftseg report", f"{run_title(facts)}, {count} folds", head, CONTENTS, sections, footer)
    )
    return target


def _comparison(result: CrossValidation) -> Html:
    """What the unlabeled scans gained over the same folds without them."""
    title = "Beside the baseline"
    if result.baseline is None:
        sentence = "A semi-supervised run says little without a supervised one on the same labeled scans."
        return section("comparison", title, missing(sentence, "graftseg train RECIPE --data DATA --out RUN --baseline"))
    head, rows = result.table()
    caption = "The same folds trained on the labeled scans alone, case by case"
    return section("comparison", title, table(head, rows, caption=caption), tag("p", SHARED, class_="caption"))


def _folds(parts: Sequence[tuple[str, ...]], evaluation: Evaluation) -> Html:
    """What each fold held out and how its network did there."""
    dice = case_dice(evaluation)
    rows = [
        [
            str(number),
            str(sum(map(len, parts)) - len(part)),
            ", ".join(part),
            percent(mean([dice[case] for case in part if case in dice])),
        ]
        for number, part in enumerate(parts)
    ]
    return section("folds", "Folds", table(["Fold", "Trained on", "Held out", "Dice %"], rows, caption="Each fold"))
