"""Ranking of unlabeled scans by how useful their annotation would be, with reasons.

In the order ``uncertainty``, a scan ranks high if it is unusual: the network is uncertain about it, it looks unlike the
labeled scans, or its classes have sizes or numbers of components that no labeled scan has. Scans that are similar to a
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
MIN_REASON = 0.5
"""A measure is listed as a reason if its scaled value, from 0 to 1, is at least this."""
SIMILAR = 0.25
"""Fraction of the median distance below which two scans are similar."""
LITTLE_FOREGROUND = 0.1
"""Fraction of the smallest foreground of the labeled scans, below which a scan has hardly any foreground."""
CLIP = 3.0
"""Features are clipped at this many spreads from the median before their covariance is computed."""
COMMON = 0.5
"""A class is common if at least this fraction of the labeled scans contains it."""
RARE = 0.1
"""A common class is not learned if it is found in at most this fraction of the unlabeled scans."""
AMOUNTS = {r"\d+\.\d times as large as": "larger than", r"\d+\.\d times smaller": "smaller", r"^\d+ specks?": "specks"}
"""Patterns of amounts in reasons, and texts without amounts, so that reasons of different scans can be compared."""


@dataclass(frozen=True)
class Ranked:
    """A ranked scan.

    score: from 0 to 1, highest for the first scan
    uncertainty: mean entropy, from 0 to 1
    unlike: distance to the nearest labeled scan; 1 is the median of this distance among the labeled scans
    size: number of doublings or halvings by which a class is outside the range of labeled sizes, highest of all classes
    specks: number of components beyond the maximum of the labeled scans, summed over the classes
    """

    case: str
    score: float
    uncertainty: float
    unlike: float
    size: float
    specks: int
    reasons: tuple[str, ...]

    def cells(self, rank: int) -> tuple[str, ...]:
        """Return the cells of the scan in a table with the header ``HEAD``."""
        numbers = (self.score, self.uncertainty, self.unlike, self.size)
        reasons = "; ".join(self.reasons) or "nothing stands out"
        return (str(rank), self.case, *(f"{number:.3f}" for number in numbers), str(self.specks), reasons)


@dataclass(frozen=True)
class Ranking:
    """Ranked scans, the most useful first.

    failures: errors of scans that could not be read
    unlearned: sentences on classes that the network finds in hardly any scan
    """

    rows: tuple[Ranked, ...]
    failures: tuple[UserError, ...] = ()
    unlearned: tuple[str, ...] = ()

    def lines(self, top: int | None = None) -> list[tuple[str, ...]]:
        """Return the table cells of the first ``top`` scans, by default of all."""
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
        """Write all scans. Replace an existing file only if it is a ranking."""
        check_ranking_path(path)
        write_text(path, csv_text([HEAD, *self.lines()]))


def describe_unlearned(
    unlabeled: Sequence[Observation], labeled: Sequence[Observation], classes: Sequence[str]
) -> tuple[str, ...]:
    """Return a sentence for each labeled class that the network finds in no or hardly any unlabeled scan.

    A single unlabeled scan shows nothing about a class.
    """
    sentences = []
    for index, name in enumerate(classes[1:] if len(unlabeled) > 1 else ()):
        found_count, labeled_count = (sum(case.sizes[index] > 0 for case in cases) for cases in (unlabeled, labeled))
        is_common = labeled_count >= COMMON * len(labeled)
        max_count = RARE * len(unlabeled) if is_common else 0
        if labeled_count and found_count <= max_count:
            doubt = "" if is_common else ", or no unlabeled scan contains it"
            sentences.append(
                f"{name} is found in {found_count or 'none'} of {len(unlabeled)} unlabeled scans and labeled in "
                f"{labeled_count} of {len(labeled)} scans: it has not been learned{doubt}."
            )
    return tuple(sentences)


def _without_amounts(reason: str) -> str:
    for amount, replacement in AMOUNTS.items():
        reason = re.sub(amount, replacement, reason)
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
    speck_counts = [sum(specks(scan, labeled)) for scan in unlabeled]
    measures = np.array([uncertainties, _unlike(unlabeled_points, labeled_points), sizes, speck_counts]).T
    scaled = scale_measures(measures)
    if by == "coverage":
        places = order_by_coverage(points, np.array(uncertainties))
    else:
        places = order_by_uncertainty(scaled, unlabeled_points)
    ranked = []
    for place in places:
        scan = unlabeled[place.index]
        reasons = [*place.reasons, *_reasons(scan, labeled, classes, scaled[place.index])]
        if place.similar_to is not None:
            reasons.append(f"much like {unlabeled[place.similar_to].case} above")
        uncertainty, unlike, size, speck_count = measures[place.index].tolist()
        ranked.append(Ranked(scan.case, place.score, uncertainty, unlike, size, int(speck_count), tuple(reasons)))
    return tuple(ranked)


@dataclass(frozen=True)
class Place:
    """The place of an unlabeled scan in the ranking.

    index: index of the scan
    similar_to: index of a similar higher-ranked scan, or None
    reasons: reasons of this order
    """

    index: int
    score: float
    similar_to: int | None
    reasons: tuple[str, ...] = ()


def order_by_uncertainty(scaled: Floats, points: Floats) -> list[Place]:
    """Order unlabeled scans by scaled measures ``(N, 4)`` and by the distances between their points ``(N, D)``.

    The score is the root mean square of the four measures, in which one outstanding measure counts more than four
    average ones. ``spread_out`` reduces the score of scans that are similar to a higher-ranked scan.
    """
    order, scores, similar = spread_out(np.sqrt(np.mean(scaled**2, axis=1)), points)
    return [Place(index, float(scores[index]), similar[index]) for index in order]


def order_by_coverage(points: Floats, uncertainties: Floats) -> list[Place]:
    """Order N unlabeled scans. The points ``(N + L, D)`` of the unlabeled scans are followed by those of labeled scans.

    The cost of a scan is its uncertainty times its distance to the nearest labeled or higher-ranked scan. The score of
    a scan is the fraction of the initial cost of all scans that it removes.
    """
    count, mean = len(uncertainties), uncertainties.mean()
    weights = uncertainties / mean if mean > 0 else np.ones(count)
    covering = cover(points[:count], points[count:], weights)
    similar = similar_above(covering.order, points[:count], _median_distance(points[:count]))
    places = []
    for index, share, represented in zip(covering.order, covering.shares, covering.represented, strict=True):
        noun = "scan" if represented == 1 else "scans"
        reasons = (f"represents {represented} other {noun}",) if represented else ()
        places.append(Place(index, share, similar[index], reasons))
    return places


def scale_measures(measures: Floats) -> Floats:
    """Scale measures ``(N, M)`` to ``z / (1 + z)``, where z is the distance above the median in units of the spread.

    Median and spread are those of the column. Values below the median become 0.
    """
    median = np.median(measures, axis=0)
    spread = 1.4826 * np.median(np.abs(measures - median), axis=0)
    z = np.maximum(measures - median, 0) / np.maximum(spread, MIN_SPREADS)
    return np.asarray(z / (1 + z))


def whitened(features: Floats) -> Floats:
    """Transform features ``(N, D)`` so that their Euclidean distances are Mahalanobis distances.

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
    The reduced scores never increase along the order, because d only decreases while scans are added. For each scan,
    ``similar_above`` returns the similar earlier scan.
    """
    count = len(scores)
    median = _median_distance(points)
    nearest = np.full(count, np.inf)
    is_unranked, order, reduced = np.ones(count, dtype=bool), [], np.zeros(count)
    for _ in range(count):
        factors = np.minimum(nearest / median, 1) if median > 0 else np.ones(count)
        candidates = np.where(is_unranked, scores * factors, -1.0)
        best = int(candidates.argmax())
        order.append(best)
        is_unranked[best], reduced[best] = False, candidates[best]
        nearest = np.minimum(nearest, np.linalg.norm(points - points[best], axis=1))
    return order, reduced, similar_above(order, points, median)


def similar_above(order: Sequence[int], points: Floats, median: float) -> list[int | None]:
    """Return for each scan the nearest scan before it in the order, or None if that scan is not similar."""
    nearest, above = np.full(len(points), np.inf), np.full(len(points), -1)
    is_later = np.ones(len(points), dtype=bool)
    for index in order:
        is_later[index] = False
        distances = np.linalg.norm(points - points[index], axis=1)
        is_closer = is_later & (distances < nearest)
        nearest[is_closer], above[is_closer] = distances[is_closer], index
    return [int(above[i]) if nearest[i] < SIMILAR * median else None for i in range(len(points))]


def doublings(scan: Observation, labeled: Sequence[Observation]) -> list[float]:
    """Return for each class log2(size / nearest labeled size), or 0 if the size is in the range of labeled sizes.

    The size of an absent class is that of one voxel.
    """
    result = []
    for index in range(len(scan.sizes)):
        labeled_sizes = [max(other.sizes[index], other.voxel_size) for other in labeled]
        size = max(scan.sizes[index], scan.voxel_size)
        result.append(float(np.log2(size / np.clip(size, min(labeled_sizes), max(labeled_sizes)))))
    return result


def specks(scan: Observation, labeled: Sequence[Observation]) -> list[int]:
    """Return for each class the number of components beyond the maximum of the labeled scans, which is at least 1."""
    maxima = [max(1, *counts) for counts in zip(*(other.parts for other in labeled), strict=True)]
    return [max(0, count - maximum) for count, maximum in zip(scan.parts, maxima, strict=True)]


def _unlike(unlabeled: Floats, labeled: Floats) -> Floats:
    """Return the distance to the nearest labeled scan. The unit is the median of this distance among labeled scans.

    With a single labeled scan, the unit is the median among the unlabeled scans.
    """
    nearest = np.linalg.norm(unlabeled[:, None] - labeled[None], axis=2).min(axis=1)
    if len(labeled) > 1:
        among_labeled = np.linalg.norm(labeled[:, None] - labeled[None], axis=2)
        np.fill_diagonal(among_labeled, np.inf)
        unit = float(np.median(among_labeled.min(axis=1)))
    else:
        unit = float(np.median(nearest))
    return np.asarray(nearest / unit if unit > 0 else nearest)


def _median_distance(points: Floats) -> float:
    """Return the median distance between pairs of scans. Only the first 400 scans are used, to limit the memory."""
    first = points[:400]
    upper = np.triu_indices(len(first), 1)
    distances = np.linalg.norm(first[:, None] - first[None], axis=2)[upper]
    return float(np.median(distances)) if len(distances) else 0.0


def _reasons(scan: Observation, labeled: Sequence[Observation], classes: Sequence[str], scaled: Floats) -> list[str]:
    reasons = []
    if scaled[0] >= MIN_REASON:
        reasons.append("uncertain at the boundary" if scan.at_boundary >= 0.5 else "uncertain about whole regions")
    if scaled[1] >= MIN_REASON:
        reasons.append("looks unlike the labeled scans")
    if sum(scan.sizes) < LITTLE_FOREGROUND * min(sum(other.sizes) for other in labeled):
        reasons.append("hardly any foreground found")
    else:
        reasons += _size_reason(scan, labeled, classes)
    if count := sum(specks(scan, labeled)):
        reasons.append(f"{count} {'speck' if count == 1 else 'specks'} that labeled scans do not have")
    return reasons


def _size_reason(scan: Observation, labeled: Sequence[Observation], classes: Sequence[str]) -> list[str]:
    """Return a phrase for the class that is farthest outside the labeled sizes, if the factor is at least 1.5."""
    exponents = doublings(scan, labeled)
    index = max(range(len(exponents)), key=lambda index: abs(exponents[index]))
    exponent, name = exponents[index], classes[index + 1]
    if abs(exponent) < np.log2(1.5):
        return []
    if scan.sizes[index] == 0:
        return [f"no {name} found"]
    if exponent > 0:
        return [f"{name} {2**exponent:.1f} times as large as in any labeled scan"]
    return [f"{name} {2**-exponent:.1f} times smaller than in any labeled scan"]


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

    data: prepared store or folder of scans, by default the training data of the run
    by: ``uncertainty`` for unusual scans, or ``coverage`` for scans that represent many uncertain scans
    out: CSV file to write
    on: Ray cluster that measures groups of scans as tasks, ``ray`` or ``ray://HOST:PORT``
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
    ranking = Ranking(rank_cases(*observed, by), measured.failures, describe_unlearned(*observed))
    if out is not None:
        ranking.write_csv(out)
    return ranking
