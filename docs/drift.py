"""Print the Dice of the demo's test scans by drift, a simulated change of scanner: ``python docs/drift.py demo``."""

import sys
from pathlib import Path

import numpy as np

from graftseg.core.run_folder import RunFolder
from graftseg.data.phantom import SPLITS
from graftseg.evaluation.scores import read_csv

BINS = 5
"""Number of intervals into which the drift, a number between 0 and 1, is divided."""


def drift_of(case: str, seed: int, dimensions: int) -> float:
    """Return the drift of a test phantom, which is the first number that its generator draws."""
    index = int(case.rpartition("_")[2])
    return float(np.random.default_rng((seed, SPLITS.index("test"), index, dimensions)).random())


def mean_dice(run: RunFolder, dimensions: int) -> list[tuple[int, float]]:
    """Return the number of test scans and their mean Dice in percent, for each interval of the drift."""
    seed = run.manifest()["seed"]
    scores: list[dict[str, list[float]]] = [{} for _ in range(BINS)]
    for row in read_csv(run.predictions / "metrics.csv").rows:
        interval = int(BINS * drift_of(row.case, seed, dimensions))
        scores[interval].setdefault(row.case, []).append(100 * row.dice)
    return [(len(cases), float(np.mean([*cases.values()]))) for cases in scores]


def table(demo: Path, dimensions: int = 2) -> str:
    """Return a Markdown table with the mean Dice of both runs of a demo."""
    supervised, bcp = (mean_dice(RunFolder(demo / name), dimensions) for name in ("supervised", "bcp"))
    lines = ["| drift | test scans | supervised | BCP |", "|---|---|---|---|"]
    for interval, ((count, baseline), (_, dice)) in enumerate(zip(supervised, bcp, strict=True)):
        lines.append(
            f"| {interval / BINS:.1f} to {(interval + 1) / BINS:.1f} | {count} | {baseline:.1f} | {dice:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table(Path(sys.argv[1])))
