"""Notes on how to read a page: metrics, empty masks, the checkpoint, the data, and terms that occur on the page."""

import re
from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from graftseg.evaluation.scores import Evaluation
from graftseg.reporting.facts import case_counts
from graftseg.reporting.rendering import ENVIRONMENT, render
from graftseg.reporting.results import LAST_CHECKPOINT, UsedCheckpoint

TAG = re.compile(r"<[^>]*>")


def notes_section(
    facts: dict[str, Any],
    evaluation: Evaluation | None,
    checkpoint: UsedCheckpoint = LAST_CHECKPOINT,
    folds: str = "",
    sections: Iterable[str] = (),
) -> Markup:
    """Render the definitions of the metrics, the rule for empty masks, the checkpoint, the data and terms.

    folds: a sentence on the data and the seed of all folds; empty for a single run
    sections: the other sections of the page, whose terms are explained
    """
    return render(
        "notes",
        data=folds or f"trained with {case_counts(facts)}, seed {facts.get('seed', 'unknown')}.",
        is_folds=bool(folds),
        has_volumes=evaluation is None or evaluation.has_volumes,
        protocol="standard" if evaluation is None else evaluation.protocol,
        checkpoint=checkpoint,
        terms=terms_in(sections),
    )


def terms_in(sections: Iterable[str]) -> dict[str, str]:
    """Return the explanations of the terms that occur in the text of rendered sections."""
    text = TAG.sub(" ", " ".join(sections))
    terms: dict[str, str] = vars(ENVIRONMENT.get_template("terms.html").module)["terms"]

    def occurs(term: str) -> bool:
        # the first letter of a sentence may be a capital letter
        first = f"[{term[0].lower()}{term[0].upper()}]" if " " in term or term.isalpha() else term[0]
        return re.search(rf"(?<![\w-]){first}{re.escape(term[1:])}(?![\w-])", text) is not None

    return {term: meaning for term, meaning in terms.items() if occurs(term)}
