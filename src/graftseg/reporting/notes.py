"""The facts and settings of a run, and notes on how to read its page."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from graftseg.evaluation.scores import Evaluation
from graftseg.reporting.facts import case_counts, flatten, with_variation
from graftseg.reporting.gaps import TRAIN, Missing
from graftseg.reporting.rendering import render
from graftseg.reporting.results import on_test

ONE_SEED = "one seed; a difference between two runs means nothing if it is smaller than the difference between seeds."
Rows = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class RunNotes:
    """Notes on the data and the number of trainings; ``deviation`` explains ± if the page uses it."""

    data: str
    trainings: str = ONE_SEED
    deviation: str = ""


def run_section(recipe: dict[str, Any] | None, rows: Rows) -> Markup:
    """Render the facts of a run and its settings, folded away."""
    facts = [[name, value] for name, value in with_variation(rows, recipe) if value]
    if recipe is None:
        return render("run", empty=Missing("The run folder has no recipe.yaml.", *TRAIN), facts=facts)
    return render("run", empty=None, facts=facts, settings=[*flatten(recipe)])


def notes_section(
    facts: dict[str, Any], evaluation: Evaluation | None, checkpoint: str = "last", notes: RunNotes | None = None
) -> Markup:
    """Render the definitions of the figures, the rule for empty masks, the checkpoint and the data."""
    return render(
        "notes",
        notes=notes or RunNotes(f"trained with {case_counts(facts)}, seed {facts.get('seed', 'unknown')}."),
        has_volumes=evaluation is None or evaluation.has_volumes,
        protocol="standard" if evaluation is None else evaluation.protocol,
        checkpoint=checkpoint,
        is_optimistic=on_test(checkpoint),
    )
