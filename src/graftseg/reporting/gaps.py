"""What fills the parts of a page that a run has nothing for yet."""

from dataclasses import dataclass
from typing import NamedTuple

from graftseg.baselines import SUPERVISED, kept_baselines
from graftseg.runs import RunFolder
from graftseg.unseen import has_unseen


class Remedy(NamedTuple):
    """A command that fills a part, and what to know of it."""

    command: str
    note: str = ""


TEST = Remedy("graftseg test RUN")
NAMED_TEST = Remedy(
    "graftseg test RUN DATA",
    "where DATA has test scans in imagesTs/ and their labels in labelsTs/; without any, train with --folds",
)
BASELINE = Remedy("graftseg train RECIPE --data DATA --out RUN --resume --baseline", "and then test the run")
OTHER = Remedy("graftseg report RUN --baseline OTHER_RUN")


@dataclass(frozen=True)
class Gaps:
    """How a run gets scores, and how something to stand beside it."""

    scores: Remedy
    beside: Remedy


def gaps_of(run: RunFolder) -> Gaps:
    """What works for a run: whether test scans of it are known, and whether a baseline was trained beside it."""
    scores = TEST if has_unseen(run) else NAMED_TEST
    if kept_baselines(run):
        return Gaps(scores, scores)
    # a supervised run is its own baseline
    return Gaps(scores, OTHER if run.manifest().get("method") == SUPERVISED else BASELINE)
