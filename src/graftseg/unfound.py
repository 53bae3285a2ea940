"""Classes that a run never finds, which a mean over cases may hide."""

import math
from collections.abc import Iterator
from pathlib import Path

from graftseg.evaluation import Evaluation


def never_found(path: Path, evaluation: Evaluation) -> Iterator[str]:
    """A sentence for each class that the run in this folder finds right in none of the cases that have it."""
    for label, name in sorted({(row.label, row.name) for row in evaluation.rows}):
        rows = [row for row in evaluation.rows if row.label == label and not math.isnan(row.dice)]
        if rows and not any(row.dice > 0 for row in rows):
            yield f"{path} finds {name} right in none of {len(rows)} cases, which makes its distances large"
