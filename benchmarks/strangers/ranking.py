"""Compare the ranking of scans with the true Dice: ``python benchmarks/strangers/ranking.py IMAGES RUN [RUN ...]``.

IMAGES is the folder imagesTs of a data set that every run has been tested on with ``graftseg test``. The ranking is
good if a scan with a low Dice gets a high uncertainty, so the Spearman correlation of uncertainty and error (1 - Dice)
should be near 1.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

from scipy.stats import spearmanr

import graftseg
from graftseg.core.run_folder import RunFolder
from graftseg.evaluation.scores import read_csv

MEASURES = ("score", "uncertainty", "unlike", "size", "specks")


def errors_of(run: RunFolder) -> dict[str, float]:
    """Return 1 - Dice of every test case, averaged over the classes."""
    rows = read_csv(run.predictions / "metrics.csv").rows
    return {case: 1 - fmean(row.dice for row in rows if row.case == case) for case in {row.case for row in rows}}


def correlations(run: Path, images: Path, device: str) -> dict[str, float]:
    """Return the Spearman correlation of every measure of the ranking with the error, if the measure varies."""
    errors, ranked = errors_of(RunFolder(run)), graftseg.rank(run, _as_unlabeled(images), device=device).rows
    common = [row for row in ranked if row.case in errors]
    truth = [errors[row.case] for row in common]
    values = {name: [getattr(row, name) for row in common] for name in MEASURES}
    varying = {name: numbers for name, numbers in values.items() if len(set(numbers)) > 1}
    return {name: round(float(spearmanr(numbers, truth).statistic), 3) for name, numbers in varying.items()}


def _as_unlabeled(images: Path) -> Path:
    """Link a data set whose unlabeled scans are the given test scans; ``rank`` needs labeled and unlabeled scans."""
    out = images.parent.with_name("ranked")
    out.mkdir(exist_ok=True)
    for name, source in {"imagesTr": "imagesTr", "labelsTr": "labelsTr", "imagesUn": images.name}.items():
        if not (out / name).exists():
            (out / name).symlink_to((images.parent / source).resolve(), target_is_directory=True)
    return out


def main() -> None:
    """Print one JSON line per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    for run in arguments.runs:
        found = correlations(run, arguments.images, arguments.device)
        print(json.dumps({"run": run.name, **found}), flush=True)


if __name__ == "__main__":
    main()
