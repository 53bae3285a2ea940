"""Paired statistics of two evaluations of the same cases: difference, confidence interval and test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from graftseg.core.names import nfc
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.table_metrics import METRIC_NAMES, OVERLAPS

Values = npt.NDArray[np.float64]
Key = tuple[str, int]  # a case and a class
RESAMPLES = 10_000
TAIL = 0.025  # probability beyond each end of the 95 % interval
BLOCK = 2**20  # number of values to draw at once, which limits the memory
DECIMALS = 9  # differences are rounded to this many decimals, so that rounding errors do not count as differences


@dataclass(frozen=True)
class Pairs:
    """Values of one metric in two runs, for the cases that have a value in both runs."""

    metric: str
    label: int | None  # value of the class, or None for the mean over the classes of each case
    name: str  # name of the class, or "mean"
    cases: tuple[str, ...]
    first: Values  # in the order of ``cases``; overlaps in percent, distances in voxels
    second: Values

    @property
    def differences(self) -> Values:
        """Return second minus first."""
        return np.asarray(np.round(self.second - self.first, DECIMALS), dtype=np.float64)


@dataclass(frozen=True)
class Effect:
    """Statistics of pairs; NaN if there are too few pairs."""

    count: int  # number of pairs
    first: float  # mean
    second: float  # mean
    difference: float  # mean
    low: float  # ends of the 95 % bootstrap interval of the mean difference
    high: float
    p: float  # two-sided p-value of Wilcoxon's signed-rank test
    better: int  # number of cases in which the second run has a larger overlap or a smaller distance
    worse: int  # number of cases in which the second run has a smaller overlap or a larger distance

    @property
    def equal(self) -> int:
        """Return the number of cases that are neither better nor worse."""
        return self.count - self.better - self.worse

    @property
    def statistics(self) -> str:
        """Return the interval and the p-value as text."""
        return f"95 % interval {self.low:+.2f} to {self.high:+.2f}, p = {self.p:.2g}"


def paired(first: Evaluation, second: Evaluation) -> list[Pairs]:
    """Return the pairs of each metric and class, and with several classes also of the mean over the shared classes."""
    result, second = [], match_case_names(first, second)
    names = {row.label: row.name for row in first.rows}
    for metric in METRIC_NAMES:
        values = (_values(first, metric), _values(second, metric))
        keys = sorted(values[0].keys() & values[1].keys(), key=lambda key: (key[1], key[0]))
        for label in sorted(names):
            groups = [[key] for key in keys if key[1] == label]
            result.append(_pairs(metric, label, names[label], groups, values))
        if len(names) > 1:
            cases = sorted({case for case, _ in keys})
            groups = [[key for key in keys if key[0] == case] for case in cases]
            result.append(_pairs(metric, None, "mean", groups, values))
    return result


def match_case_names(first: Evaluation, second: Evaluation) -> Evaluation:
    """Rename cases of the second evaluation as in the first if their names differ only in Unicode form."""
    names = {nfc(row.case): row.case for row in first.rows}
    rows = (replace(row, case=names.get(nfc(row.case), row.case)) for row in second.rows)
    return replace(second, rows=tuple(rows))


def effect_of(pairs: Pairs) -> Effect:
    """Compute the statistics of pairs."""
    differences = pairs.differences
    count = len(differences)
    up, down = int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0))
    better, worse = (up, down) if pairs.metric in OVERLAPS else (down, up)
    low, high = bootstrap(differences)
    first, second, difference = (
        float(values.mean()) if count else math.nan for values in (pairs.first, pairs.second, differences)
    )
    return Effect(count, first, second, difference, low, high, signed_rank(differences), better, worse)


def bootstrap(differences: Values, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean difference; NaN for fewer than two cases.

    Plain percentile intervals are too narrow for few cases. The expanded percentile interval of Hesterberg (2015) uses
    wider percentiles, from Student's distribution instead of the normal distribution.
    """
    count = len(differences)
    if count < 2:
        return math.nan, math.nan
    generator = np.random.default_rng(0)
    block = max(1, BLOCK // count)
    sizes = [min(block, resamples - done) for done in range(0, resamples, block)]
    means = np.concatenate([differences[generator.integers(count, size=(size, count))].mean(axis=1) for size in sizes])
    tail = _tail(count)
    low, high = np.percentile(means, (tail, 100 - tail))
    return float(low), float(high)


def _tail(count: int) -> float:
    """Return the percentage of resamples beyond each end of the interval."""
    from scipy.special import ndtr, stdtrit

    return 100 * float(ndtr(stdtrit(count - 1, TAIL) * math.sqrt(count / (count - 1))))


def signed_rank(differences: Values) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test: 1 if all differences are 0, NaN without any."""
    from scipy.stats import wilcoxon

    if not len(differences):
        return math.nan
    nonzero = differences[differences != 0]
    return float(wilcoxon(nonzero).pvalue) if len(nonzero) else 1.0


def _values(evaluation: Evaluation, metric: str) -> dict[Key, float]:
    scale = 100 if metric in OVERLAPS else 1
    values = {(row.case, row.label): scale * getattr(row, metric) for row in evaluation.rows}
    return {key: value for key, value in values.items() if not math.isnan(value)}


def _pairs(
    metric: str, label: int | None, name: str, groups: Sequence[Sequence[Key]], values: Sequence[Mapping[Key, float]]
) -> Pairs:
    """Return pairs of means over groups of keys, one group per case, from the values of both runs."""
    first, second = (np.array([math.fsum(map(run.__getitem__, keys)) / len(keys) for keys in groups]) for run in values)
    return Pairs(metric, label, name, tuple(keys[0][0] for keys in groups), first, second)
