"""Which image is pasted onto which, and how much each of them counts."""

from typing import Literal, NamedTuple

from graftseg.core.types import Labeled

Direction = Literal["both", "in", "out", "within", "none"]


class Mixture(NamedTuple):
    """Images whose crops are pasted and those they are pasted onto, with the weights of background and foreground."""

    background: Labeled
    foreground: Labeled
    weights: tuple[float, float]


def mixtures(direction: Direction, labeled: Labeled, unlabeled: Labeled, alpha: float) -> dict[str, Mixture]:
    """The mixtures of a step by name; ``unlabeled`` comes with its pseudo-labels, whose voxels count ``alpha``.

    ``both``: X_in and X_out of Eqs. (1) and (2) with the weights of Eqs. (6) and (7). ``in`` and ``out``: the same
    pairs, one of the two. ``within``: crops of labeled images pasted onto labeled ones, of unlabeled ones onto
    unlabeled ones. ``none``: every image by itself, for a mask that is 1 everywhere.
    """
    if direction == "none":
        return {
            "labeled": Mixture(labeled, labeled, (1.0, 0.0)),
            "unlabeled": Mixture(unlabeled, unlabeled, (alpha, 0.0)),
        }
    (i, j), (p, q) = labeled.halves(), unlabeled.halves()
    if direction == "within":
        return {"labeled": Mixture(i, j, (1.0, 1.0)), "unlabeled": Mixture(p, q, (alpha, alpha))}
    both = {"in": Mixture(j, p, (1.0, alpha)), "out": Mixture(q, i, (alpha, 1.0))}
    return both if direction == "both" else {direction: both[direction]}
