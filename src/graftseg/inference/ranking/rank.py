"""Ranking of unlabeled scans by how useful their annotation would be, with reasons.

A scan ranks high if the network is uncertain about it, if it looks unlike the labeled scans, or if its classes have
sizes or numbers of components that labeled scans do not have. Scans similar to a higher-ranked scan rank lower.
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
from graftseg.core.progress import track
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import find_store
from graftseg.inference.model import TrainedNetwork, load_network
from graftseg.inference.ranking.cases import Candidate, candidates_in
from graftseg.inference.ranking.observe import Observation, observe

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
        """Return a sentence if all scans, not only the top scans, share a reason. Amounts in reasons are ignored."""
        kinds = [[_kind(reason) for reason in row.reasons] for row in self.rows]
        shared = [kind for kind in kinds[0] if all(kind in others for others in kinds)] if len(kinds) > 1 else []
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
        found, shown = (sum(one.sizes[index] > 0 for one in cases) for cases in (unlabeled, labeled))
        is_common = shown >= COMMON * len(labeled)
        if len(unlabeled) < 2 or not shown or found > (RARE * len(unlabeled) if is_common else 0):
            continue
        sentences.append(
            f"{name} is found in {found or 'none'} of {len(unlabeled)} unlabeled scans and labeled in {shown} of "
            f"{len(labeled)} scans: it has not been learned{'' if is_common else ', or no unlabeled scan contains it'}."
        )
    return tuple(sentences)


def _kind(reason: str) -> str:
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
    unlabeled: Sequence[Observation], labeled: Sequence[Observation], classes: Sequence[str]
) -> tuple[Ranked, ...]:
    """Rank the unlabeled scans by score and by distance to higher-ranked scans.

    Each measure becomes ``z / (1 + z)``, where z is its distance above the median in units of the spread over all
    unlabeled scans. The root mean square of the four measures lets one outstanding measure count more than four average
    ones. ``spread_out`` reduces it for scans that are similar to a higher-ranked scan. The result is the score. The
    order of the given scans does not matter. Ties are sorted by name.
    """
    pool = sorted(unlabeled, key=lambda one: one.case)
    known = sorted(labeled, key=lambda one: one.case)
    points = whitened(np.stack([one.features for one in (*pool, *known)]))
    own, references = points[: len(pool)], points[len(pool) :]
    uncertainties = [one.uncertainty for one in pool]
    sizes = [max(map(abs, doublings(one, known)), default=0.0) for one in pool]
    extra_parts = [sum(specks(one, known)) for one in pool]
    measures = np.array([uncertainties, _unlike(own, references), sizes, extra_parts]).T
    outstanding = stand_out(measures)
    order, scores, above = spread_out(np.sqrt(np.mean(outstanding**2, axis=1)), own)
    ranked = []
    for index in order:
        reasons = _reasons(pool[index], known, classes, outstanding[index])
        if (like := above[index]) is not None:
            reasons.append(f"much like {pool[like].case} above")
        uncertainty, unlike, size, extra = measures[index].tolist()
        score = float(scores[index])
        ranked.append(Ranked(pool[index].case, score, uncertainty, unlike, size, int(extra), tuple(reasons)))
    return tuple(ranked)


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
    nearest, above = np.full(count, np.inf), np.full(count, -1)
    left, order, reduced = np.ones(count, dtype=bool), [], np.zeros(count)
    for _ in range(count):
        share = np.minimum(nearest / median, 1) if median > 0 else np.ones(count)
        gain = np.where(left, scores * share, -1.0)
        best = int(gain.argmax())
        order.append(best)
        left[best], reduced[best] = False, gain[best]
        to_best = np.linalg.norm(points - points[best], axis=1)
        closer = left & (to_best < nearest)
        nearest[closer], above[closer] = to_best[closer], best
    similar = [int(above[i]) if median > 0 and nearest[i] < SIMILAR * median else None for i in range(count)]
    return order, reduced, similar


def doublings(one: Observation, known: Sequence[Observation]) -> list[float]:
    """Return for each class log2(size / nearest labeled size), or 0 if the size is in the range of labeled sizes."""
    result = []
    for index, size in enumerate(one.sizes):
        low, high = (edge(max(other.sizes[index], other.voxel) for other in known) for edge in (min, max))
        found = max(size, one.voxel)
        result.append(float(np.log2(found / high)) if found > high else float(min(np.log2(found / low), 0.0)))
    return result


def specks(one: Observation, known: Sequence[Observation]) -> list[int]:
    """Return for each class the number of components beyond the maximum of the labeled scans."""
    return [max(0, count - max(1, *(other.parts[index] for other in known))) for index, count in enumerate(one.parts)]


def _unlike(own: Floats, references: Floats) -> Floats:
    """Return the distance to the nearest labeled scan. The unit is the median of this distance among labeled scans."""
    nearest = np.linalg.norm(own[:, None] - references[None], axis=2).min(axis=1)
    if len(references) > 1:
        among = np.linalg.norm(references[:, None] - references[None], axis=2)
        np.fill_diagonal(among, np.inf)
        typical = float(np.median(among.min(axis=1)))
    else:
        typical = float(np.median(nearest))
    return np.asarray(nearest / typical if typical > 0 else nearest)


def _median_distance(points: Floats) -> float:
    """Return the median distance between pairs of scans. Only the first 400 scans are used, to limit the memory."""
    some = points[:400]
    upper = np.triu_indices(len(some), 1)
    distances = np.linalg.norm(some[:, None] - some[None], axis=2)[upper]
    return float(np.median(distances)) if len(distances) else 0.0


def _reasons(one: Observation, known: Sequence[Observation], classes: Sequence[str], outstanding: Floats) -> list[str]:
    reasons = []
    if outstanding[0] >= STANDS_OUT:
        reasons.append("uncertain at the boundary" if one.at_boundary >= 0.5 else "uncertain about whole regions")
    if outstanding[1] >= STANDS_OUT:
        reasons.append("looks unlike the labeled scans")
    if sum(one.sizes) < LITTLE_FOREGROUND * min(sum(other.sizes) for other in known):
        reasons.append("hardly any foreground found")
    else:
        reasons += _size_reason(one, known, classes)
    if many := sum(specks(one, known)):
        reasons.append(f"{many} {'speck' if many == 1 else 'specks'} that labeled scans do not have")
    return reasons


def _size_reason(one: Observation, known: Sequence[Observation], classes: Sequence[str]) -> list[str]:
    """Return a phrase for the class that is farthest outside the labeled sizes, if the factor is at least 1.5."""
    steps = doublings(one, known)
    value = max(range(len(steps)), key=lambda index: abs(steps[index]))
    step, name = steps[value], classes[value + 1]
    if abs(step) < np.log2(1.5):
        return []
    if one.sizes[value] == 0:
        return [f"no {name} found"]
    if step > 0:
        return [f"{name} {2**step:.1f} times as large as in any labeled scan"]
    return [f"{name} {2**-step:.1f} times smaller than in any labeled scan"]


def rank_run(run: RunFolder, data: Path | None, out: Path | None, device: torch.device) -> Ranking:
    """Rank the unlabeled scans. A scan that cannot be read is reported, and the other scans are still ranked."""
    if out is not None:
        check_ranking_path(out)
    network = load_network(run, device)
    known, candidates = candidates_in(data or find_store(run), network.recipe)
    labeled, broken = _observe_all(network, known, "Measuring labeled scans")
    if not labeled:
        raise broken[0]
    unlabeled, failures = _observe_all(network, candidates, "Measuring unlabeled scans")
    if not unlabeled:
        raise failures[0]
    observed = (unlabeled, labeled, network.classes)
    ranking = Ranking(rank_cases(*observed), (*broken, *failures), unlearned(*observed))
    if out is not None:
        ranking.write_csv(out)
    return ranking


def _observe_all(
    network: TrainedNetwork, cases: list[Candidate], description: str
) -> tuple[list[Observation], list[UserError]]:
    observed, failures = [], []
    for case in track(cases, description, len(cases)):
        try:
            observed.append(observe(network, case.name, case.read()))
        except UserError as error:
            failures.append(error)
        except (torch.OutOfMemoryError, MemoryError):
            remedy = "use --device cpu or a larger machine"
            failures.append(UserError(Code.OUT_OF_MEMORY, case.name, "does not fit into memory", remedy))
    return observed, failures
