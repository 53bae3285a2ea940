"""How labeled cases are divided, so that each is scored by a network that never saw it."""

from collections.abc import Sequence

import numpy as np

from graftseg.core.errors import Code, UserError

USUAL = 5
LEAST = 2
_STREAM = 0xF01D
"""Keeps the shuffle apart from whatever else the same seed draws."""


def suggested_folds(labeled: int, *, has_test: bool) -> int | None:
    """Into how many folds so many labeled cases should be divided; None where a test set says more, or one case less.

    Fewer than five cases are left out one by one, since every one of them is needed for training.
    """
    if has_test or labeled < LEAST:
        return None
    return min(labeled, USUAL)


def divide(cases: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """The cases, shuffled by the seed, in ``count`` parts whose sizes differ by one at most; each part by name.

    The order in which the cases are given plays no part.
    """
    names = sorted(cases)
    if not LEAST <= count <= len(names):
        finding = f"{len(names)} labeled {'case' if len(names) == 1 else 'cases'} cannot be divided into {count} folds"
        raise UserError(Code.TOO_FEW_CASES, f"--folds {count}", finding, _remedy(len(names)))
    order = np.random.default_rng((seed, _STREAM)).permutation(len(names))
    return [tuple(sorted(names[place] for place in part)) for part in np.array_split(order, count)]


def _remedy(cases: int) -> str:
    if cases < LEAST:
        return "label at least one more scan, or train a single network with --folds 0"
    return f"choose from {LEAST} to {cases}" + ("" if cases == LEAST else f", where {cases} leaves out one at a time")
