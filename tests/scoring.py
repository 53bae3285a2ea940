"""Scoring of a single folder."""

from pathlib import Path
from typing import Any

from graftseg.evaluation.evaluate import evaluate_folders
from graftseg.evaluation.scores import Evaluation


def evaluate_folder(predictions: Path, references: Path, **options: Any) -> Evaluation:
    """Score the label maps of one folder without writing a table."""
    (evaluation,) = evaluate_folders([predictions], references, **options)
    return evaluation
