"""The table of planned recipes on data that no recipe was tuned on.

Every record is a JSON file in ``results/strangers``, written by ``benchmarks/strangers/run.py``. It contains the Dice
of each test case in percent, of the supervised baseline, of the run with unlabeled scans and of the shipped network.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_object
from graftseg.experiments.tables import markdown

NAME = "strangers"
HEAD = ("data", "labeled", "runs", "supervised", "with unlabeled", "shipped", "gain", "worst gain", "lost classes")
NOTE = (
    "Mean test Dice in percent over all runs of a row, from planned recipes without any change by hand. *gain* is "
    "*shipped* minus *supervised*, *worst gain* is the lowest gain of a single run. *lost classes* counts classes that "
    "a shipped network finds in no test case.\n"
)


@dataclass(frozen=True)
class Stranger:
    """The scores of one planned run."""

    data: str
    labeled: int
    supervised: float
    unlabeled: float
    shipped: float
    lost: int

    @classmethod
    def read(cls, path: Path) -> "Stranger":
        """Read a record."""
        content = read_object(path)
        try:
            means = {key: fmean(content[key].values()) for key in ("supervised", "unlabeled", "shipped")}
            return cls(content["data"], content["labeled"], **means, lost=len(content["lost"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            remedy = "restore the file, or run benchmarks/strangers/run.py again"
            raise UserError(Code.DAMAGED_FILE, path, f"damaged or edited ({error})", remedy) from None

    @property
    def gain(self) -> float:
        """Points of Dice of the shipped network above the supervised baseline."""
        return self.shipped - self.supervised


def strangers_page(results: Path) -> str:
    """Return the table as Markdown."""
    groups: dict[tuple[str, int], list[Stranger]] = defaultdict(list)
    for path in sorted((results / NAME).glob("*.json")):
        one = Stranger.read(path)
        groups[one.data, one.labeled].append(one)
    rows = [_row(runs) for _, runs in sorted(groups.items())]
    return f"## Planned recipes on data nobody tuned on\n\n{markdown([HEAD, *rows])}\n{NOTE}"


def _row(runs: Sequence[Stranger]) -> tuple[str, ...]:
    means = [fmean(getattr(run, key) for run in runs) for key in ("supervised", "unlabeled", "shipped", "gain")]
    numbers = [f"{mean:.2f}" for mean in means[:3]] + [f"{means[3]:+.2f}", f"{min(run.gain for run in runs):+.2f}"]
    lost = str(sum(run.lost for run in runs))
    return (runs[0].data, str(runs[0].labeled), str(len(runs)), *numbers, lost)
