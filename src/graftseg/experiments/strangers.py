"""The table of planned recipes on data that no recipe was tuned on.

``benchmarks/strangers/run.py`` writes a JSON file per device to ``results/strangers``, with the records of all runs by
name. A record contains the Dice of each test case in percent: of the supervised baseline, of the run with unlabeled
scans, and of the shipped network.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_object
from graftseg.evaluation.statistics import DECIMALS, bootstrap
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
    "with labels for all training scans. *with unlabeled* is the network of the run before averaging, even if the "
    "check of the teacher skipped or stopped self-training. *lost classes* counts classes that a shipped network finds "
    "in no test case.\n"
)
LARGE_GAIN, FAR_BELOW = 2.0, 8.0
"""Where supervised is more than ``FAR_BELOW`` below all labels, the mean gain should be above ``LARGE_GAIN``."""
CRITERIA = ("criterion", "required", "result", "exceptions")
CRITERIA_NOTE = (
    "*not worse within noise* means that the 95 % interval of the gain of a run contains 0 or is above 0. This "
    "interval is a bootstrap of the paired differences of the test cases (expanded percentiles, as in `graftseg "
    "compare`). It shows the noise of the cases, not of the seed. *not recorded* means that there is no run with all "
    "labels.\n"
)
Key = tuple[str, str, int]  # data, device, number of labeled scans


@dataclass(frozen=True)
class PlannedRun:
    """The mean test Dice of the three networks of one planned run."""

    data: str
    device: str
    labeled: int
    all_labeled: bool  # all training scans have labels, so the supervised network is an upper bound
    supervised: float
    unlabeled: float
    shipped: float
    lost: int  # number of classes that the shipped network lost
    highest_gain: float  # upper end of the 95 % interval of the gain, NaN with a single test case

    @classmethod
    def of(cls, content: Mapping[str, Any], path: Path) -> "PlannedRun":
        """Return the run of a record. ``path`` is the file of the record, for errors."""
        try:
            about = {key: content[key] for key in ("data", "device", "labeled", "all_labeled")}
            means = {key: fmean(content[key].values()) for key in ("supervised", "unlabeled", "shipped")}
            differences = [content["shipped"][case] - dice for case, dice in content["supervised"].items()]
            _, highest_gain = bootstrap(np.round(differences, DECIMALS))
            values: dict[str, Any] = {**about, **means, "lost": len(content["lost"]), "highest_gain": highest_gain}
            return cls(**values)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            remedy = "restore the file, or run benchmarks/strangers/run.py again"
            raise UserError(Code.DAMAGED_FILE, path, f"damaged or edited ({error})", remedy) from None

    @property
    def gain(self) -> float:
        """Dice of the shipped network minus Dice of the supervised baseline, in percentage points."""
        return self.shipped - self.supervised

    @property
    def is_not_worse(self) -> bool:
        """Whether the interval of the gain contains 0 or is above 0. Without an interval, the gain decides."""
        return (self.gain if isnan(self.highest_gain) else self.highest_gain) >= 0


def strangers_page(results: Path) -> str:
    """Return the table as Markdown."""
    groups: dict[Key, list[PlannedRun]] = defaultdict(list)
    bounds: dict[tuple[str, str], float] = {}
    files = sorted((results / NAME).glob("*.json"))
    for run in (PlannedRun.of(record, path) for path in files for record in read_object(path).values()):
        if run.all_labeled:
            bounds[run.data, run.device] = run.supervised
        else:
            groups[run.data, run.device, run.labeled].append(run)
    rows = [_row(runs, bounds.get(key[:2])) for key, runs in sorted(groups.items())]
    page = f"## Planned recipes with nothing set by hand\n\n{markdown([HEAD, *rows])}\n{NOTE}"
    if not groups:
        return page
    every_run = [run for runs in groups.values() for run in runs]
    criteria = _criteria_of_runs(every_run) + _criteria_of_data(groups, bounds)
    return f"{page}\n{markdown([CRITERIA, *criteria])}\n{CRITERIA_NOTE}"


def _criteria_of_runs(runs: Sequence[PlannedRun]) -> list[tuple[str, ...]]:
    worst = min(runs, key=lambda run: run.gain)
    counts = sum(run.gain >= 0 for run in runs), sum(run.is_not_worse for run in runs)
    raw, noise = (f"{count} of {len(runs)} runs ({100 * count / len(runs):.1f} %)" for count in counts)
    return [
        ("shipped is at least as good as supervised", NO_VALUE, raw, ""),
        ("shipped is not worse within noise", "95 % of runs", noise, ""),
        ("worst gain of a run", "at least -1", f"{worst.gain:+.2f}", _title(worst.data, worst.device)),
        ("lost classes", "0", str(sum(run.lost for run in runs)), ""),
    ]


def _criteria_of_data(
    groups: Mapping[Key, Sequence[PlannedRun]], bounds: Mapping[tuple[str, str], float]
) -> list[tuple[str, ...]]:
    """Return the rows of the criteria for mean gains: of each data set, and of each row far below all labels."""
    by_data: dict[str, list[float]] = defaultdict(list)
    far: dict[str, float] = {}
    unknown = []
    for (data, device, labeled), runs in sorted(groups.items()):
        gains, name = [run.gain for run in runs], f"{_title(data, device)}, {labeled} labeled"
        by_data[_title(data, device)] += gains
        if (bound := bounds.get((data, device))) is None:
            unknown.append(f"{name}: not recorded")
        elif bound - fmean(run.supervised for run in runs) > FAR_BELOW:
            far[name] = fmean(gains)
    means = {name: fmean(gains) for name, gains in by_data.items()}
    condition = f"mean gain above {LARGE_GAIN:g} where supervised is more than {FAR_BELOW:g} below all labels"
    above = "mean gain above 0", "all data", *_above(means, 0.0)
    return [above, (condition, "all rows", *_above(far, LARGE_GAIN, unknown))]


def _above(gains: Mapping[str, float], limit: float, others: Sequence[str] = ()) -> tuple[str, str]:
    """Return how many gains are above a limit, and the exceptions."""
    exceptions = [f"{name}: {gain:+.2f}" for name, gain in gains.items() if gain <= limit]
    return f"{len(gains) - len(exceptions)} of {len(gains)}", "; ".join([*exceptions, *others])


def _title(data: str, device: str) -> str:
    return f"{data} ({device})"


def _row(runs: Sequence[PlannedRun], bound: float | None) -> tuple[str, ...]:
    means = [fmean(getattr(run, key) for run in runs) for key in ("supervised", "unlabeled", "shipped", "gain")]
    numbers = [f"{mean:.2f}" for mean in means[:3]] + [f"{means[3]:+.2f}", f"{min(run.gain for run in runs):+.2f}"]
    highest = NO_VALUE if bound is None else f"{bound:.2f}"
    lost = str(sum(run.lost for run in runs))
    return (runs[0].data, runs[0].device, str(runs[0].labeled), str(len(runs)), *numbers, highest, lost)
