"""Reasons of the ranking: what is unusual about a scan, and which classes the network has not learned."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graftseg.core.phrases import counted
from graftseg.inference.ranking.features import Floats
from graftseg.inference.ranking.observe import Observation, Observations

MIN_REASON = 0.5  # a measure is listed as a reason if its scaled value, from 0 to 1, is at least this
LITTLE_FOREGROUND = 0.1
"""Fraction of the smallest foreground of the labeled scans, below which a scan has hardly any foreground."""
COMMON = 0.5  # a class is common if at least this fraction of the labeled scans contains it
RARE = 0.1  # a common class is not learned if it is found in at most this fraction of the unlabeled scans


class Reason(NamedTuple):
    """A reason. For reasons with an amount, ``kind`` is the reason without it: "smaller", not "2.0 times smaller"."""

    text: str
    kind: str = ""


def reasons_of(scan: Observation, labeled: Observations, classes: Sequence[str], scaled: Floats) -> list[Reason]:
    """Return what is unusual about a scan with these scaled measures (uncertainty, unlike, size, specks)."""
    reasons = []
    if scaled[0] >= MIN_REASON:
        where = "at the boundary" if scan.at_boundary >= 0.5 else "about whole regions"
        reasons.append(Reason(f"uncertain {where}"))
    if scaled[1] >= MIN_REASON:
        reasons.append(Reason("looks unlike the labeled scans"))
    if sum(scan.sizes) < LITTLE_FOREGROUND * min(sum(other.sizes) for other in labeled):
        reasons.append(Reason("hardly any foreground found"))
    else:
        reasons += _size_reason(scan, labeled, classes)
    if count := sum(specks(scan, labeled)):
        ending = "that labeled scans do not have"
        reasons.append(Reason(f"{counted(count, 'speck')} {ending}", f"specks {ending}"))
    return reasons


def _size_reason(scan: Observation, labeled: Observations, classes: Sequence[str]) -> list[Reason]:
    """Return a reason for the class that is farthest outside the labeled sizes, if the factor is at least 1.5."""
    exponents = doublings(scan, labeled)
    index = max(range(len(exponents)), key=lambda index: abs(exponents[index]))
    exponent, name = exponents[index], classes[index + 1]
    if abs(exponent) < np.log2(1.5):
        return []
    if scan.sizes[index] == 0:
        return [Reason(f"no {name} found")]
    if exponent > 0:
        amount, kind = f"{2**exponent:.1f} times as large as", "larger than"
    else:
        amount, kind = f"{2**-exponent:.1f} times smaller than", "smaller than"
    return [Reason(f"{name} {amount} in any labeled scan", f"{name} {kind} in any labeled scan")]


def doublings(scan: Observation, labeled: Observations) -> list[float]:
    """Return for each class log2(size / nearest labeled size). An absent class has the size of one voxel."""
    result = []
    for index in range(len(scan.sizes)):
        labeled_sizes = [max(other.sizes[index], other.voxel_size) for other in labeled]
        size = max(scan.sizes[index], scan.voxel_size)
        result.append(float(np.log2(size / np.clip(size, min(labeled_sizes), max(labeled_sizes)))))
    return result


def specks(scan: Observation, labeled: Observations) -> list[int]:
    """Return for each class the number of components beyond the maximum of the labeled scans, which is at least 1."""
    maxima = [max(1, *counts) for counts in zip(*(other.components for other in labeled), strict=True)]
    return [max(0, count - maximum) for count, maximum in zip(scan.components, maxima, strict=True)]


def describe_unlearned(unlabeled: Observations, labeled: Observations, classes: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence for each labeled class that is found in hardly any unlabeled scan, of at least two scans."""
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
