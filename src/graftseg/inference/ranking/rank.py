"""Which unlabeled scans are most worth annotating next, and why.

A scan is worth it if the network is unsure of it, if it looks unlike the labeled scans, or if what was found in it has
sizes or specks that labeled scans do not have; and if it is unlike those that come before it.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

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
FLOORS = (0.02, 0.25, 1.0, 1.0)
"""The least difference that counts, of each measure: smaller ones are noise even where all scans are alike."""
STANDS_OUT = 0.5
ALIKE = 0.25
HARDLY_ANY = 0.1
CLIP = 3.0
SELDOM = 0.1
"""Share of scans below which a class that is usually there counts as not learned."""
USUAL = 0.5
"""Share of labeled scans that must show a class for it to be expected in the others."""
AMOUNTS = {r"\d+\.\d times as large as": "larger than", r"\d+\.\d times smaller": "smaller", r"^\d+ specks?": "specks"}
"""What differs in a reason from scan to scan where the reason is the same, and words in its place."""


@dataclass(frozen=True)
class Ranked:
    """A scan in its place.

    ``score`` lies between 0 and 1. ``uncertainty`` is that of the observation; ``unlike`` the distance from the nearest
    labeled scan, where 1 is the usual distance of labeled scans from each other; ``size`` how many doublings or
    halvings a class lies outside the sizes of the labeled scans; ``specks`` how many parts more than in any of them.
    """

    case: str
    score: float
    uncertainty: float
    unlike: float
    size: float
    specks: int
    reasons: tuple[str, ...]

    def cells(self, rank: int) -> tuple[str, ...]:
        """The scan as a row under ``HEAD``."""
        numbers = (self.score, self.uncertainty, self.unlike, self.size)
        return (str(rank), self.case, *(f"{number:.3f}" for number in numbers), str(self.specks), self.said)

    @property
    def said(self) -> str:
        """The reasons in one phrase."""
        return "; ".join(self.reasons) or "nothing stands out"


@dataclass(frozen=True)
class Ranking:
    """All scans, the most worthwhile first, and those that could not be looked at, each with its reason.

    ``unlearned`` are sentences on classes that the network finds in hardly any scan.
    """

    rows: tuple[Ranked, ...]
    failures: tuple[UserError, ...] = ()
    unlearned: tuple[str, ...] = ()

    def lines(self, top: int | None = None) -> list[tuple[str, ...]]:
        """The first rows as cells."""
        return [row.cells(rank) for rank, row in enumerate(self.rows[:top], start=1)]

    def in_common(self) -> str | None:
        """A sentence where one reason stands beside all scans, whatever its numbers are.

        All of them: the first ones have reasons in common because these have put them first.
        """
        if len(self.rows) < 2:
            return None
        kinds = [[_kind(reason) for reason in row.reasons] for row in self.rows]
        shared = [kind for kind in kinds[0] if all(kind in others for others in kinds)]
        if not shared:
            return None
        return (
            f"The same stands beside every scan ({'; '.join(shared)}): it speaks of the network rather than of "
            "the scans. A class that is found nowhere has not been learned yet."
        )

    def write_csv(self, path: Path) -> None:
        """Write every row; only a table of this kind is ever replaced."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([HEAD, *self.lines()])
        check_target(path)
        write_text(path, stream.getvalue())


def unlearned(
    unlabeled: Sequence[Observation], labeled: Sequence[Observation], classes: Sequence[str]
) -> tuple[str, ...]:
    """A sentence for each class that labeled scans show and that the network finds in none, or nearly none, of many."""
    return tuple(
        sentence
        for index, name in enumerate(classes[1:])
        if (
            sentence := _unlearned(name, [one.sizes[index] for one in unlabeled], [one.sizes[index] for one in labeled])
        )
    )


def _unlearned(name: str, found: Sequence[float], known: Sequence[float]) -> str | None:
    seen, shown = sum(size > 0 for size in found), sum(size > 0 for size in known)
    is_usual = shown >= USUAL * len(known)
    if len(found) < 2 or not shown or seen > (SELDOM * len(found) if is_usual else 0):
        return None
    meaning = "has not been learned yet" if is_usual else "has not been learned yet, or none of these scans shows it"
    return (
        f"{name} is found in {seen or 'none'} of {len(found)} unlabeled scans and labeled in {shown} of {len(known)}: "
        f"it {meaning}."
    )


def _kind(reason: str) -> str:
    for amount, words in AMOUNTS.items():
        reason = re.sub(amount, words, reason)
    return reason


def check_target(path: Path) -> None:
    """Refuse a file that a ranking may not be written to."""
    if path.suffix != ".csv":
        raise UserError(
            Code.TOO_FEW_CASES, path, "the ranking is a .csv file", "name a file that ends in .csv as --out"
        )
    if path.is_file() and path.open(encoding="utf-8", errors="replace").readline().strip() != ",".join(HEAD):
        raise UserError(Code.UNSAFE_TARGET, path, "exists and is not a ranking", "name another file as --out")


def rank_cases(
    unlabeled: Sequence[Observation], labeled: Sequence[Observation], classes: Sequence[str]
) -> tuple[Ranked, ...]:
    """Put the unlabeled scans in order: the best score first, then whatever is good and unlike those before.

    Each measure is set against the median of all unlabeled scans, in units of their spread, as ``z / (1 + z)``; the
    score is the root mean square of the four, so that one that stands out far counts more than four that hardly do.
    The order of the arguments does not matter; of equals the first by name comes first.
    """
    pool = sorted(unlabeled, key=lambda one: one.case)
    known = sorted(labeled, key=lambda one: one.case)
    places = whitened(np.stack([one.features for one in (*pool, *known)]))
    own, references = places[: len(pool)], places[len(pool) :]
    measures = np.array(
        [
            [one.uncertainty for one in pool],
            _unlike(own, references),
            [max(map(abs, doublings(one, known)), default=0.0) for one in pool],
            [sum(specks(one, known)) for one in pool],
        ]
    ).T
    outstanding = stand_out(measures)
    scores = np.sqrt(np.mean(outstanding**2, axis=1))
    order, above = spread_out(scores, own)
    return tuple(
        Ranked(
            case=pool[index].case,
            score=float(scores[index]),
            uncertainty=float(measures[index, 0]),
            unlike=float(measures[index, 1]),
            size=float(measures[index, 2]),
            specks=int(measures[index, 3]),
            reasons=(
                *_reasons(pool[index], known, classes, outstanding[index]),
                *(() if (like := above[index]) is None else (f"much like {pool[like].case} above",)),
            ),
        )
        for index in order
    )


def stand_out(measures: Floats) -> Floats:
    """Measures ``(N, M)`` -> how far each stands out above the median of its column, 0 to below 1."""
    median = np.median(measures, axis=0)
    spread = 1.4826 * np.median(np.abs(measures - median), axis=0)
    z = np.maximum(measures - median, 0) / np.maximum(spread, FLOORS)
    result: Floats = z / (1 + z)
    return result


def whitened(features: Floats) -> Floats:
    """Features ``(N, D)`` in coordinates whose Euclidean distance is Mahalanobis' with a shrunken covariance.

    Each feature is first put on the scale of its own spread. The covariance is shrunk towards a multiple of the
    identity as Ledoit and Wolf do, since there are rarely more scans than features; it is taken of clipped values, so
    that an odd scan does not widen the measure by which it is odd.
    """
    centred = features - np.median(features, axis=0)
    spread = 1.4826 * np.median(np.abs(centred), axis=0)
    spread = np.where(spread > 0, spread, centred.std(axis=0))
    varied = centred[:, spread > 0] / spread[spread > 0]
    if not varied.size:
        return np.zeros((len(features), 1))
    clipped = varied.clip(-CLIP, CLIP)
    values, vectors = np.linalg.eigh(shrunken_covariance(clipped - clipped.mean(axis=0)))
    result: Floats = varied @ (vectors / np.sqrt(np.maximum(values, 1e-9))) / np.sqrt(varied.shape[1])
    return result


def shrunken_covariance(centred: Floats) -> Floats:
    """Ledoit's and Wolf's covariance of centred values ``(N, D)``: between the empirical one and a sphere."""
    count, width = centred.shape
    covariance = centred.T @ centred / count
    sphere = np.trace(covariance) / width * np.eye(width)
    apart = float(((covariance - sphere) ** 2).sum())
    noise = float(((centred**2).sum(axis=1) ** 2).sum() - count * (covariance**2).sum()) / count**2
    weight = min(1.0, noise / apart) if apart > 0 else 1.0
    result: Floats = (1 - weight) * covariance + weight * sphere
    return result


def spread_out(scores: Floats, places: Floats) -> tuple[list[int], list[int | None]]:
    """The greedy order of scans that are good and far from all before, and for each the one above it that it is like.

    A score counts in full from the median distance of two scans on, and not at all in the same place.
    """
    count = len(scores)
    usual = _usual_distance(places)
    nearest, above = np.full(count, np.inf), np.full(count, -1)
    left, order = np.ones(count, dtype=bool), []
    for _ in range(count):
        share = np.minimum(nearest / usual, 1) if usual > 0 else np.ones(count)
        gain = np.where(left, scores * share, -1.0)
        best = int(gain.argmax())
        order.append(best)
        left[best] = False
        to_best = np.linalg.norm(places - places[best], axis=1)
        closer = left & (to_best < nearest)
        nearest[closer], above[closer] = to_best[closer], best
    alike = [int(above[i]) if usual > 0 and nearest[i] < ALIKE * usual else None for i in range(count)]
    return order, alike


def doublings(one: Observation, known: Sequence[Observation]) -> list[float]:
    """For each class how many doublings above the largest labeled size, or below the smallest (negative); else 0."""
    result = []
    for index, size in enumerate(one.sizes):
        low, high = (edge(max(other.sizes[index], other.voxel) for other in known) for edge in (min, max))
        found = max(size, one.voxel)
        result.append(float(np.log2(found / high)) if found > high else float(min(np.log2(found / low), 0.0)))
    return result


def specks(one: Observation, known: Sequence[Observation]) -> list[int]:
    """For each class how many parts more than in any labeled scan."""
    return [max(0, count - max(1, *(other.parts[index] for other in known))) for index, count in enumerate(one.parts)]


def _unlike(own: Floats, references: Floats) -> Floats:
    """Distance from the nearest labeled scan, in units of the usual distance of labeled scans from their nearest."""
    nearest = np.linalg.norm(own[:, None] - references[None], axis=2).min(axis=1)
    if len(references) > 1:
        among = np.linalg.norm(references[:, None] - references[None], axis=2)
        np.fill_diagonal(among, np.inf)
        usual = float(np.median(among.min(axis=1)))
    else:
        usual = float(np.median(nearest))
    result: Floats = nearest / usual if usual > 0 else nearest
    return result


def _usual_distance(places: Floats) -> float:
    """The median distance of two scans, from at most the first few hundred."""
    some = places[:400]
    upper = np.triu_indices(len(some), 1)
    distances = np.linalg.norm(some[:, None] - some[None], axis=2)[upper]
    return float(np.median(distances)) if len(distances) else 0.0


def _reasons(one: Observation, known: Sequence[Observation], classes: Sequence[str], outstanding: Floats) -> list[str]:
    said = []
    if outstanding[0] >= STANDS_OUT:
        said.append("uncertain at the boundary" if one.at_boundary >= 0.5 else "uncertain about whole regions")
    if outstanding[1] >= STANDS_OUT:
        said.append("looks unlike the labeled scans")
    if sum(one.sizes) < HARDLY_ANY * min(sum(other.sizes) for other in known):
        said.append("hardly any foreground found")
    else:
        said += _size_said(one, known, classes)
    if many := sum(specks(one, known)):
        said.append(f"{many} {'speck' if many == 1 else 'specks'} that labeled scans do not have")
    return said


def _size_said(one: Observation, known: Sequence[Observation], classes: Sequence[str]) -> list[str]:
    """A phrase for the class that is farthest from the labeled sizes, by half or more."""
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
    """Look at every scan once; one that cannot be read is named at the end and does not stop the others."""
    if out is not None:
        check_target(out)
    network = load_network(run, device)
    cases = candidates_in(data or find_store(run), network.recipe)
    labeled, broken = _observed(network, cases.labeled, "Looking at labeled scans")
    if not labeled:
        raise broken[0]
    unlabeled, failures = _observed(network, cases.unlabeled, "Looking at unlabeled scans")
    if not unlabeled:
        raise failures[0]
    ranking = Ranking(
        rank_cases(unlabeled, labeled, network.classes),
        (*broken, *failures),
        unlearned(unlabeled, labeled, network.classes),
    )
    if out is not None:
        ranking.write_csv(out)
    return ranking


def _observed(
    network: TrainedNetwork, cases: tuple[Candidate, ...], description: str
) -> tuple[list[Observation], list[UserError]]:
    observed, failures = [], []
    for case in track(cases, description, len(cases)):
        try:
            observed.append(observe(network, case.name, case.read()))
        except UserError as error:
            failures.append(error)
        except (torch.OutOfMemoryError, MemoryError):
            failures.append(
                UserError(
                    Code.OUT_OF_MEMORY, case.name, "does not fit into memory", "use --device cpu or a larger machine"
                )
            )
    return observed, failures
