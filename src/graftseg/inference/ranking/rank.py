"""Ranking of unlabeled scans by how useful their annotation would be, with reasons.

In the order ``uncertainty``, a scan ranks high if it is unusual: the network is uncertain about it, it looks unlike the
labeled scans, or its classes have sizes or numbers of components that no labeled scan has. Scans that are similar to a
higher-ranked scan rank lower. In the order ``coverage``, a scan ranks high if it represents many uncertain scans.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from graftseg.core.csv_tables import csv_text
from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_text
from graftseg.core.phrases import counted
from graftseg.core.reading import read_start
from graftseg.core.run_folder import RunFolder
from graftseg.core.tasks import LOCAL, Executor, open_executor
from graftseg.data.store import find_store
from graftseg.inference.ensemble import folder_of_network
from graftseg.inference.ranking import DEFAULT_ORDER, Order
from graftseg.inference.ranking.coverage import Place, cover
from graftseg.inference.ranking.features import (
    Floats,
    distance_to_labeled,
    scale_measures,
    similar_above,
    spread_out,
    whitened,
)
from graftseg.inference.ranking.measure import measure
from graftseg.inference.ranking.observe import Observations
from graftseg.inference.ranking.reasons import Reason, describe_unlearned, doublings, reasons_of, specks

HEAD = ("rank", "case", "score", "uncertainty", "unlike", "size", "specks", "reasons")


@dataclass(frozen=True)
class Ranked:
    """A ranked scan."""

    case: str
    score: float  # from 0 to 1, highest for the first scan
    uncertainty: float  # mean entropy, from 0 to 1
    unlike: float  # distance to the nearest labeled scan; 1 is the median of this distance among the labeled scans
    size: float  # |log2| of the most unusual size of a class, relative to the nearest labeled size
    specks: int  # number of components beyond the maximum of the labeled scans, summed over the classes
    reasons: tuple[str, ...]
    kinds: tuple[str, ...] = ()  # the reasons without their amounts

    def cells(self, rank: int) -> tuple[str, ...]:
        """Return the cells of the scan in a table with the header ``HEAD``."""
        numbers = (self.score, self.uncertainty, self.unlike, self.size)
        reasons = "; ".join(self.reasons) or "nothing stands out"
        return (str(rank), self.case, *(f"{number:.3f}" for number in numbers), str(self.specks), reasons)


@dataclass(frozen=True)
class Ranking:
    """Ranked scans, the most useful first."""

    rows: tuple[Ranked, ...]
    failures: tuple[UserError, ...] = ()  # errors of scans that could not be read
    unlearned: tuple[str, ...] = ()  # sentences on classes that the network finds in hardly any scan

    def lines(self, top: int | None = None) -> list[tuple[str, ...]]:
        """Return the table cells of the first ``top`` scans, by default of all."""
        return [row.cells(rank) for rank, row in enumerate(self.rows[:top], start=1)]

    def in_common(self) -> str | None:
        """Return a sentence about reasons that all scans share, apart from amounts, or None."""
        first, *others = [row.kinds for row in self.rows]
        shared = [kind for kind in first if all(kind in kinds for kinds in others)] if others else []
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


def check_ranking_path(path: Path) -> None:
    """Raise an error if a ranking may not be written to this path."""
    if path.suffix != ".csv":
        raise UserError(Code.OPTION_INVALID, path, "the ranking must be a .csv file", "end --out in .csv")
    if path.is_file() and read_start(path, 4096).decode(errors="replace").partition("\n")[0].strip() != ",".join(HEAD):
        raise UserError(Code.UNSAFE_TARGET, path, "the file exists and is not a ranking", "name another file as --out")


def rank_cases(
    unlabeled: Observations, labeled: Observations, classes: Sequence[str], by: Order = DEFAULT_ORDER
) -> tuple[Ranked, ...]:
    """Rank the unlabeled scans by score. The order of the given scans does not matter. Ties are sorted by name."""
    unlabeled = sorted(unlabeled, key=lambda scan: scan.case)
    labeled = sorted(labeled, key=lambda scan: scan.case)
    points = whitened(np.stack([scan.features for scan in (*unlabeled, *labeled)]))
    unlabeled_points, labeled_points = points[: len(unlabeled)], points[len(unlabeled) :]
    uncertainties = [scan.uncertainty for scan in unlabeled]
    sizes = [max(map(abs, doublings(scan, labeled)), default=0.0) for scan in unlabeled]
    speck_counts = [sum(specks(scan, labeled)) for scan in unlabeled]
    distances = distance_to_labeled(unlabeled_points, labeled_points)
    measures = np.array([uncertainties, distances, sizes, speck_counts]).T
    scaled = scale_measures(measures)
    if by == "coverage":
        places = order_by_coverage(points, np.array(uncertainties))
    else:
        # in the root mean square of the measures, one outstanding measure counts more than four average ones
        order, scores = spread_out(np.sqrt(np.mean(scaled**2, axis=1)), unlabeled_points)
        places = [Place(index, float(scores[index])) for index in order]
    similar = similar_above([place.index for place in places], unlabeled_points)
    ranked = []
    for place in places:
        scan = unlabeled[place.index]
        reasons = [Reason(f"represents {counted(place.represented, 'other scan')}")] if place.represented else []
        reasons += reasons_of(scan, labeled, classes, scaled[place.index])
        if (above := similar[place.index]) is not None:
            reasons.append(Reason(f"much like {unlabeled[above].case} above"))
        uncertainty, unlike, size, speck_count = measures[place.index].tolist()
        texts, kinds = tuple(each.text for each in reasons), tuple(each.kind or each.text for each in reasons)
        ranked.append(Ranked(scan.case, place.score, uncertainty, unlike, size, int(speck_count), texts, kinds))
    return tuple(ranked)


def order_by_coverage(points: Floats, uncertainties: Floats) -> list[Place]:
    """Order N unlabeled scans. The points ``(N + L, D)`` of the unlabeled scans are followed by those of labeled scans.

    The cost of a scan is its uncertainty times its distance to the nearest labeled or higher-ranked scan.
    """
    count, mean = len(uncertainties), uncertainties.mean()
    weights = uncertainties / mean if mean > 0 else np.ones(count)
    return cover(points[:count], points[count:], weights)


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
