"""Ranking of unlabeled scans by how useful their annotation would be, with reasons.

In the order ``uncertainty``, a scan ranks high if the network is uncertain about it, if it looks unlike the labeled
scans, or if its classes have sizes or numbers of components that labeled scans do not have. Scans similar to a
higher-ranked scan rank lower. In the order ``coverage``, a scan ranks high if it represents many uncertain scans.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from graftseg.core.csv_tables import csv_text
from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_text
from graftseg.core.run_folder import RunFolder
from graftseg.core.tasks import LOCAL, Executor, open_executor
from graftseg.data.store import find_store
from graftseg.inference.ensemble import folder_of_network
from graftseg.inference.ranking.coverage import cover
from graftseg.inference.ranking.measure import measure
from graftseg.inference.ranking.observe import Observation
from graftseg.inference.ranking.orders import DEFAULT_ORDER, Order

Floats = NDArray[np.float64]
HEAD = ("rank", "case", "score", "uncertainty", "unlike", "size", "specks", "reasons")
MIN_SPREADS = (0.02, 0.25, 1.0, 1.0)
"""Lower limits for the spread of each measure (uncertainty, unlike, size, specks), so that noise does not stand out."""
STANDS_OUT = 0.5
"""Minimum value of a scaled measure, from 0 to 1, for which the measure is listed as a reason."""
SIMILAR = 0.25
"""Fraction of the median distance below which two scans are similar."""
LITTLE_FOREGROUND = 0.1
"""Fraction of the smallest labeled foreground below which a scan has hardly any foreground."""
CLIP = 3.0
"""Features are clipped at this many spreads from the median before their covariance is computed."""
COMMON = 0.5
"""A class counts as common if at least this fraction of the labeled scans contains it."""
RARE = 0.1
"""A common class counts as not learned if it is found in at most this fraction of the unlabeled scans."""
AMOUNTS = {r"\d+\.\d times as large as": "larger than", r"\d+\.\d times smaller": "smaller", r"^\d+ specks?": "specks"}
"""Patterns of amounts in reasons and their replacements, so that reasons of different scans can be compared."""


@dataclass(frozen=True)
class Ranked:
    """A ranked scan.

    ``score`` is between 0 and 1, and the scans are sorted by it. ``uncertainty`` is the mean entropy. ``unlike`` is the
    distance to the nearest labeled scan, where 1 is the median distance from a labeled scan to its nearest other
    labeled scan. ``size`` is the largest number of doublings or halvings by which a class is outside the range of
    labeled sizes. ``specks`` is the number of components beyond the maximum of the labeled scans, summed over the
    classes.
    """

    case: str
    score: float
    uncertainty: float
    unlike: float
    size: float
    specks: int
    reasons: tuple[str, ...]

    def cells(self, rank: int) -> tuple[str, ...]:
        """Return the scan as a table row under ``HEAD``."""
        numbers = (self.score, self.uncertainty, self.unlike, self.size)
        reasons = "; ".join(self.reasons) or "nothing stands out"
        return (str(rank), self.case, *(f"{number:.3f}" for number in numbers), str(self.specks), reasons)


@dataclass(frozen=True)
class Ranking:
    """All scans, the most useful first, and the errors of scans that could not be read.

    ``unlearned`` are sentences on classes that the network finds in hardly any scan.
    """

    rows: tuple[Ranked, ...]
    failures: tuple[UserError, ...] = ()
    unlearned: tuple[str, ...] = ()

    def lines(self, top: int | None = None) -> list[tuple[str, ...]]:
        """Return the first ``top`` rows as table cells."""
        return [row.cells(rank) for rank, row in enumerate(self.rows[:top], start=1)]

    def in_common(self) -> str | None:
        """Return a sentence if all scans share a reason. Amounts in reasons are ignored."""
        reasons = [[_without_amounts(reason) for reason in row.reasons] for row in self.rows]
        shared = [reason for reason in reasons[0] if all(reason in row for row in reasons)] if len(reasons) > 1 else []
        if not shared:
            return None
        return (
            f"All scans share a reason ({'; '.join(shared)}), which describes the network rather than the scans. "
            "A class that is found nowhere has not been learned yet."
        )

    def write_csv(self, path: Path) -> None:
        """Write every row. An existing file is replaced only if it is a ranking."""
        check_ranking_path(path)
        write_text(path, csv_text([HEAD, *self.lines()]))


def unlearned(
    unlabeled: Sequence[Observation], labeled: Sequence[Observation], classes: Sequence[str]
) -> tuple[str, ...]:
    """Return a sentence for each labeled class that the network finds in no or hardly any unlabeled scan."""
    sentences = []
    for index, name in enumerate(classes[1:]):
        found, shown = (sum(case.sizes[index] > 0 for case in cases) for cases in (unlabeled, labeled))
        is_common = shown >= COMMON * len(labeled)
        if len(unlabeled) < 2 or not shown or found > (RARE * len(unlabeled) if is_common else 0):
            continue
        sentences.append(
            f"{name} is found in {found or 'none'} of {len(unlabeled)} unlabeled scans and labeled in {shown} of "
            f"{len(labeled)} scans: it has not been learned{'' if is_common else ', or no unlabeled scan contains it'}."
        )
    return tuple(sentences)


def _without_amounts(reason: str) -> str:
    for amount, words in AMOUNTS.items():
        reason = re.sub(amount, words, reason)
    return reason


def check_ranking_path(path: Path) -> None:
    """Raise an error if a ranking may not be written to this path."""
    if path.suffix != ".csv":
        raise UserError(Code.OPTION_INVALID, path, "the ranking must be a .csv file", "end --out in .csv")
    if path.is_file() and path.open(encoding="utf-8", errors="replace").readline().strip() != ",".join(HEAD):
        raise UserError(Code.UNSAFE_TARGET, path, "the file exists and is not a ranking", "name another file as --out")


def rank_cases(
    unlabeled: Sequence[Observation],
    labeled: Sequence[Observation],
    classes: Sequence[str],
    by: Order = DEFAULT_ORDER,
) -> tuple[Ranked, ...]:
    """Rank the unlabeled scans by score. The order of the arguments does not matter. Ties are sorted by name."""
    unlabeled = sorted(unlabeled, key=lambda scan: scan.case)
    labeled = sorted(labeled, key=lambda scan: scan.case)
    points = whitened(np.stack([scan.features for scan in (*unlabeled, *labeled)]))
    unlabeled_points, labeled_points = points[: len(unlabeled)], points[len(unlabeled) :]
    uncertainties = [scan.uncertainty for scan in unlabeled]
    sizes = [max(map(abs, doublings(scan, labeled)), default=0.0) for scan in unlabeled]
    extra_parts = [sum(specks(scan, labeled)) for scan in unlabeled]
    measures = np.array([uncertainties, _unlike(unlabeled_points, labeled_points), sizes, extra_parts]).T
    outstanding = stand_out(measures)
    if by == "coverage":
        places = by_coverage(points, np.array(uncertainties))
    else:
        places = by_uncertainty(outstanding, unlabeled_points)
    ranked = []
    for place in places:
        scan = unlabeled[place.index]
        reasons = [*place.reasons, *_reasons(scan, labeled, classes, outstanding[place.index])]
        if place.like is not None:
            reasons.append(f"much like {unlabeled[place.like].case} above")
        uncertainty, unlike, size, extra = measures[place.index].tolist()
        ranked.append(Ranked(scan.case, place.score, uncertainty, unlike, size, int(extra), tuple(reasons)))
    return tuple(ranked)


@dataclass(frozen=True)
class Place:
    """The place of a scan in an order: its index, its score, a similar scan above it, and reasons for this order."""

    index: int
    score: float
    like: int | None
    reasons: tuple[str, ...] = ()


def by_uncertainty(outstanding: Floats, points: Floats) -> list[Place]:
    """Order scans by scaled measures ``(N, 4)`` and by the distances between points ``(N, D)``.

    Each measure was scaled to ``z / (1 + z)``, where z is its distance above the median in units of the spread over all
    unlabeled scans. The root mean square of the four measures lets one outstanding measure count more than four average
    ones. ``spread_out`` reduces it for scans that are similar to a higher-ranked scan. The result is the score.
    """
    order, scores, above = spread_out(np.sqrt(np.mean(outstanding**2, axis=1)), points)
    return [Place(index, float(scores[index]), above[index]) for index in order]


def by_coverage(points: Floats, uncertainties: Floats) -> list[Place]:
    """Order the first scans of points ``(N + L, D)``. The other L points are labeled scans.

    Each scan costs its uncertainty times its distance to the nearest labeled or higher-ranked scan. The score is the
    fraction of the cost of all scans, before any is ranked, that a scan removes.
    """
    count, mean = len(uncertainties), uncertainties.mean()
    weights = uncertainties / mean if mean > 0 else np.ones(count)
    covering = cover(points[:count], points[count:], weights)
    above = similar_above(covering.order, points[:count], _median_distance(points[:count]))
    places = []
    for index, share, others in zip(covering.order, covering.shares, covering.represented, strict=True):
        reasons = (f"represents {others} other {'scan' if others == 1 else 'scans'}",) if others else ()
        places.append(Place(index, share, above[index], reasons))
    return places


def stand_out(measures: Floats) -> Floats:
    """Return how far measures ``(N, M)`` are above the median of their column, scaled to [0, 1)."""
    median = np.median(measures, axis=0)
    spread = 1.4826 * np.median(np.abs(measures - median), axis=0)
    z = np.maximum(measures - median, 0) / np.maximum(spread, MIN_SPREADS)
    return np.asarray(z / (1 + z))


def whitened(features: Floats) -> Floats:
    """Transform features ``(N, D)`` so that Euclidean distances are Mahalanobis distances with a shrunken covariance.

    Each feature is first divided by its spread. The covariance is shrunk as by Ledoit and Wolf, because there are
    rarely more scans than features. It is computed from clipped features, so that outliers do not widen it.
    """
    centered = features - np.median(features, axis=0)
    spread = 1.4826 * np.median(np.abs(centered), axis=0)
    spread = np.where(spread > 0, spread, centered.std(axis=0))
    varied = centered[:, spread > 0] / spread[spread > 0]
    if not varied.size:
        return np.zeros((len(features), 1))
    clipped = varied.clip(-CLIP, CLIP)
    values, vectors = np.linalg.eigh(shrunken_covariance(clipped - clipped.mean(axis=0)))
    return np.asarray(varied @ (vectors / np.sqrt(np.maximum(values, 1e-9))) / np.sqrt(varied.shape[1]))


def shrunken_covariance(centered: Floats) -> Floats:
    """Return the Ledoit-Wolf covariance of centered values ``(N, D)``."""
    count, width = centered.shape
    covariance = centered.T @ centered / count
    sphere = np.trace(covariance) / width * np.eye(width)
    distance = float(((covariance - sphere) ** 2).sum())
    noise = float(((centered**2).sum(axis=1) ** 2).sum() - count * (covariance**2).sum()) / count**2
    weight = min(1.0, noise / distance) if distance > 0 else 1.0
    return np.asarray((1 - weight) * covariance + weight * sphere)


def spread_out(scores: Floats, points: Floats) -> tuple[list[int], Floats, list[int | None]]:
    """Order scans greedily by reduced score. Return the order, the reduced scores and the similar earlier scans.

    Each score is multiplied by min(1, d / m). d is the distance to the nearest earlier scan. m is the median distance.
    The reduced scores never increase along the order, because d only decreases while scans are added. The last result
    is, for each scan, the index of a similar earlier scan or None.
    """
    count = len(scores)
    median = _median_distance(points)
    nearest = np.full(count, np.inf)
    is_left, order, reduced = np.ones(count, dtype=bool), [], np.zeros(count)
    for _ in range(count):
        share = np.minimum(nearest / median, 1) if median > 0 else np.ones(count)
        gain = np.where(is_left, scores * share, -1.0)
        best = int(gain.argmax())
        order.append(best)
        is_left[best], reduced[best] = False, gain[best]
        nearest = np.minimum(nearest, np.linalg.norm(points - points[best], axis=1))
    return order, reduced, similar_above(order, points, median)


def similar_above(order: Sequence[int], points: Floats, median: float) -> list[int | None]:
    """Return for each scan the nearest scan before it in the order, or None if that scan is not similar."""
    nearest, above = np.full(len(points), np.inf), np.full(len(points), -1)
    is_left = np.ones(len(points), dtype=bool)
    for index in order:
        is_left[index] = False
        distances = np.linalg.norm(points - points[index], axis=1)
        closer = is_left & (distances < nearest)
        nearest[closer], above[closer] = distances[closer], index
    return [int(above[i]) if nearest[i] < SIMILAR * median else None for i in range(len(points))]


def doublings(scan: Observation, labeled: Sequence[Observation]) -> list[float]:
    """Return for each class log2(size / nearest labeled size), or 0 if the size is in the range of labeled sizes."""
    result = []
    for index, size in enumerate(scan.sizes):
        low, high = (edge(max(other.sizes[index], other.voxel) for other in labeled) for edge in (min, max))
        size = max(size, scan.voxel)
        result.append(float(np.log2(size / high)) if size > high else float(min(np.log2(size / low), 0.0)))
    return result


def specks(scan: Observation, labeled: Sequence[Observation]) -> list[int]:
    """Return for each class the number of components beyond the maximum of the labeled scans."""
    return [
        max(0, count - max(1, *(other.parts[index] for other in labeled))) for index, count in enumerate(scan.parts)
    ]


def _unlike(unlabeled: Floats, labeled: Floats) -> Floats:
    """Return the distance to the nearest labeled scan. The unit is the median of this distance among labeled scans."""
    nearest = np.linalg.norm(unlabeled[:, None] - labeled[None], axis=2).min(axis=1)
    if len(labeled) > 1:
        among = np.linalg.norm(labeled[:, None] - labeled[None], axis=2)
        np.fill_diagonal(among, np.inf)
        typical = float(np.median(among.min(axis=1)))
    else:
        typical = float(np.median(nearest))
    return np.asarray(nearest / typical if typical > 0 else nearest)


def _median_distance(points: Floats) -> float:
    """Return the median distance between pairs of scans. Only the first 400 scans are used, to limit the memory."""
    first = points[:400]
    upper = np.triu_indices(len(first), 1)
    distances = np.linalg.norm(first[:, None] - first[None], axis=2)[upper]
    return float(np.median(distances)) if len(distances) else 0.0


def _reasons(
    scan: Observation, labeled: Sequence[Observation], classes: Sequence[str], outstanding: Floats
) -> list[str]:
    reasons = []
    if outstanding[0] >= STANDS_OUT:
        reasons.append("uncertain at the boundary" if scan.at_boundary >= 0.5 else "uncertain about whole regions")
    if outstanding[1] >= STANDS_OUT:
        reasons.append("looks unlike the labeled scans")
    if sum(scan.sizes) < LITTLE_FOREGROUND * min(sum(other.sizes) for other in labeled):
        reasons.append("hardly any foreground found")
    else:
        reasons += _size_reason(scan, labeled, classes)
    if many := sum(specks(scan, labeled)):
        reasons.append(f"{many} {'speck' if many == 1 else 'specks'} that labeled scans do not have")
    return reasons


def _size_reason(scan: Observation, labeled: Sequence[Observation], classes: Sequence[str]) -> list[str]:
    """Return a phrase for the class that is farthest outside the labeled sizes, if the factor is at least 1.5."""
    steps = doublings(scan, labeled)
    value = max(range(len(steps)), key=lambda index: abs(steps[index]))
    step, name = steps[value], classes[value + 1]
    if abs(step) < np.log2(1.5):
        return []
    if scan.sizes[value] == 0:
        return [f"no {name} found"]
    if step > 0:
        return [f"{name} {2**step:.1f} times as large as in any labeled scan"]
    return [f"{name} {2**-step:.1f} times smaller than in any labeled scan"]


def rank(
    run: str | Path,
    data: str | Path | None = None,
    *,
    by: Order = DEFAULT_ORDER,
    out: str | Path | None = None,
    device: str = "auto",
    on: str | None = None,
) -> Ranking:
    """Rank the unlabeled scans by how useful their annotation would be, with reasons.

    ``data`` is a prepared store or a folder of scans, by default the training data of the run. ``by`` is
    ``uncertainty`` for unusual scans, or ``coverage`` for scans that represent many uncertain scans. ``out`` is a CSV
    file. With ``on``, groups of scans are tasks on the Ray cluster ``ray`` or ``ray://HOST:PORT``.
    """
    folder, _ = folder_of_network(RunFolder(Path(run)), "shipped", None)
    with open_executor(on) as executor:
        chosen = executor.choose_device(device)
        return rank_run(folder, Path(data) if data else None, Path(out) if out else None, chosen, by, executor)


def rank_run(
    run: RunFolder,
    data: Path | None,
    out: Path | None,
    device: torch.device,
    by: Order = DEFAULT_ORDER,
    executor: Executor = LOCAL,
) -> Ranking:
    """Rank the unlabeled scans. A scan that cannot be read is reported, and the other scans are still ranked."""
    if out is not None:
        check_ranking_path(out)
    measured = measure(run, data or find_store(run), device, executor)
    observed = (measured.unlabeled, measured.labeled, measured.classes)
    ranking = Ranking(rank_cases(*observed, by), measured.failures, unlearned(*observed))
    if out is not None:
        ranking.write_csv(out)
    return ranking
