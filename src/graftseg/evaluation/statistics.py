"""Two evaluations of the same cases, case by case: what differs, how surely, and for how many."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from graftseg.core.names import nfc
from graftseg.evaluation.figures import FIGURES, SHARES
from graftseg.evaluation.scores import Evaluation

Values = npt.NDArray[np.float64]
RESAMPLES = 10_000
TAIL = 0.025
BLOCK = 2**20
SAME = 9
"""Decimals up to which two scores are compared, so that rounding makes neither a winner nor breaks a tie."""


@dataclass(frozen=True)
class Pairs:
    """A figure of two runs on the cases that have it in both: overlaps in percent, distances in voxels.

    ``label`` is that of a class, or None for the mean over a case's classes. ``first`` and ``second`` are ordered as
    ``cases`` is.
    """

    figure: str
    label: int | None
    name: str
    cases: tuple[str, ...]
    first: Values
    second: Values

    @property
    def differences(self) -> Values:
        """The second run's values less the first's."""
        return np.asarray(np.round(self.second - self.first, SAME), dtype=np.float64)


@dataclass(frozen=True)
class Effect:
    """What pairs say together; NaN where they are too few to say it.

    ``low`` and ``high`` enclose the mean difference in 95 of 100 resamples of the cases. ``p`` is that of Wilcoxon's
    signed-rank test, two-sided. For ``better`` cases the second run has the larger overlap or the smaller distance.
    """

    count: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float
    better: int
    worse: int

    @property
    def equal(self) -> int:
        """Cases that are neither better nor worse."""
        return self.count - self.better - self.worse


def paired(first: Evaluation, second: Evaluation) -> list[Pairs]:
    """The pairs of every figure: of each class, and where there are several of their mean in each case.

    A case counts in the mean with those of its classes that both runs have a value for.
    """
    found, second = [], match_case_names(first, second)
    for figure in FIGURES:
        one, two = _values(first, figure), _values(second, figure)
        keys = sorted(one.keys() & two.keys(), key=lambda key: (key[1], key[0]))
        names = {row.label: row.name for row in first.rows}
        for label in sorted(names):
            chosen = [key for key in keys if key[1] == label]
            found.append(_pairs(figure, label, names[label], [[key] for key in chosen], one, two))
        if len(names) > 1:
            cases = sorted({case for case, _ in keys})
            groups = [[key for key in keys if key[0] == case] for case in cases]
            found.append(_pairs(figure, None, "mean", groups, one, two))
    return found


def match_case_names(first: Evaluation, second: Evaluation) -> Evaluation:
    """The second evaluation with its cases called as in the first, where only the form of their letters differs."""
    names = {nfc(row.case): row.case for row in first.rows}
    rows = (replace(row, case=names.get(nfc(row.case), row.case)) for row in second.rows)
    return replace(second, rows=tuple(rows))


def effect_of(pairs: Pairs) -> Effect:
    """Means, interval, test and counts of some pairs."""
    differences = pairs.differences
    count = len(differences)
    up, down = int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0))
    better, worse = (up, down) if pairs.figure in SHARES else (down, up)
    low, high = bootstrap(differences)
    first, second, difference = (
        float(values.mean()) if count else math.nan for values in (pairs.first, pairs.second, differences)
    )
    return Effect(count, first, second, difference, low, high, signed_rank(differences), better, worse)


def bootstrap(differences: Values, resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile interval of the mean over cases drawn with replacement; none of fewer than two cases.

    The fewer the cases, the further out the percentiles: plain ones are too narrow by as much as Student's
    distribution is wider than the normal one (Hesterberg 2015 calls this the expanded percentile interval).
    """
    count = len(differences)
    if count < 2:
        return math.nan, math.nan
    generator = np.random.default_rng(seed)
    block = max(1, BLOCK // count)
    sizes = [min(block, resamples - done) for done in range(0, resamples, block)]
    means = np.concatenate([differences[generator.integers(count, size=(size, count))].mean(axis=1) for size in sizes])
    tail = _tail(count)
    low, high = np.percentile(means, (tail, 100 - tail))
    return float(low), float(high)


def _tail(count: int) -> float:
    """Percent of the resamples that lie beyond each end of the interval."""
    from scipy.special import ndtr, stdtrit

    return 100 * float(ndtr(stdtrit(count - 1, TAIL) * math.sqrt(count / (count - 1))))


def signed_rank(differences: Values) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; differences of zero are left out, and all zero is no difference."""
    from scipy.stats import wilcoxon

    if not len(differences):
        return math.nan
    known = differences[differences != 0]
    return float(wilcoxon(known).pvalue) if len(known) else 1.0


def _values(evaluation: Evaluation, figure: str) -> dict[tuple[str, int], float]:
    """A figure by case and class, where there is one."""
    scale = 100 if figure in SHARES else 1
    values = {(row.case, row.label): scale * getattr(row, figure) for row in evaluation.rows}
    return {key: value for key, value in values.items() if not math.isnan(value)}


def _pairs(
    figure: str,
    label: int | None,
    name: str,
    groups: Sequence[Sequence[tuple[str, int]]],
    one: dict[tuple[str, int], float],
    two: dict[tuple[str, int], float],
) -> Pairs:
    """Pairs of means over the classes of each group, all of one case."""
    first, second = (
        np.array([math.fsum(values[key] for key in group) / len(group) for group in groups]) for values in (one, two)
    )
    return Pairs(figure, label, name, tuple(group[0][0] for group in groups), first, second)
