"""The table of planned recipes on data that no recipe was tuned on.

Every record is a JSON file in ``results/strangers``, written by ``benchmarks/strangers/run.py``. It contains the Dice
of each test case in percent, of the supervised baseline, of the run with unlabeled scans and of the shipped network.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_object
from graftseg.evaluation.table_metrics import NO_VALUE
from graftseg.experiments.tables import markdown

NAME = "strangers"
HEAD = (
    "data", "device", "labeled", "runs", "supervised", "with unlabeled", "shipped", "gain", "worst gain", "all labels",
    "lost classes",
)  # fmt: skip
NOTE = (
    "Mean test Dice in percent over all runs of a row, from planned recipes without any change by hand. *gain* is "
    "*shipped* minus *supervised*, *worst gain* is the lowest gain of a single run. *all labels* is a supervised run "
    "with labels for all training scans. *with unlabeled* is the network of the run, even if the check of the teacher "
    "skipped or stopped self-training. *lost classes* counts classes that a shipped network finds in no test case.\n"
)


@dataclass(frozen=True)
class Stranger:
    """The mean test Dice of the networks of one planned run, and the number of classes that the shipped network lost.

    With ``all_labeled``, all training scans have labels, and the supervised network is an upper bound.
    """

    data: str
    device: str
    labeled: int
    all_labeled: bool
    supervised: float
    unlabeled: float
    shipped: float
    lost: int

    @classmethod
    def read(cls, path: Path) -> "Stranger":
        """Read a record."""
        content = read_object(path)
        try:
            about = {key: content[key] for key in ("data", "device", "labeled", "all_labeled")}
            means = {key: fmean(content[key].values()) for key in ("supervised", "unlabeled", "shipped")}
            values: dict[str, Any] = {**about, **means, "lost": len(content["lost"])}
            return cls(**values)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            remedy = "restore the file, or run benchmarks/strangers/run.py again"
            raise UserError(Code.DAMAGED_FILE, path, f"damaged or edited ({error})", remedy) from None

    @property
    def gain(self) -> float:
        """Dice of the shipped network minus Dice of the supervised baseline, in percentage points."""
        return self.shipped - self.supervised


def strangers_page(results: Path) -> str:
    """Return the table as Markdown."""
    groups: dict[tuple[str, str, int], list[Stranger]] = defaultdict(list)
    bounds: dict[tuple[str, str], float] = {}
    for path in sorted((results / NAME).glob("*.json")):
        run = Stranger.read(path)
        if run.all_labeled:
            bounds[run.data, run.device] = run.supervised
        else:
            groups[run.data, run.device, run.labeled].append(run)
    rows = [_row(runs, bounds.get(key[:2])) for key, runs in sorted(groups.items())]
    return f"## Planned recipes with nothing set by hand\n\n{markdown([HEAD, *rows])}\n{NOTE}"


def _row(runs: Sequence[Stranger], bound: float | None) -> tuple[str, ...]:
    means = [fmean(getattr(run, key) for run in runs) for key in ("supervised", "unlabeled", "shipped", "gain")]
    numbers = [f"{mean:.2f}" for mean in means[:3]] + [f"{means[3]:+.2f}", f"{min(run.gain for run in runs):+.2f}"]
    highest = NO_VALUE if bound is None else f"{bound:.2f}"
    lost = str(sum(run.lost for run in runs))
    return (runs[0].data, runs[0].device, str(runs[0].labeled), str(len(runs)), *numbers, highest, lost)
