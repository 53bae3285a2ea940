"""Overlap and surface distances between a mask and its reference.

Masks are boolean arrays ``(*space)``, 2-D or 3-D. Distances are in voxels unless a spacing in mm is given.

The surface of a mask is the set of voxels that one erosion with the connectivity-1 element removes. Voxels outside
the array are background: an object that touches the border has a surface there, and an object in a single slice
consists of surface only. ``d(P -> G)`` is the set of Euclidean distances from each surface voxel of the prediction P to
the nearest surface voxel of the reference G. ``d`` is the union of d(P -> G) and d(G -> P).

    dice          2 |P ∩ G| / (|P| + |G|)
    jaccard       |P ∩ G| / |P ∪ G|
    hd95          95th percentile of d: "95HD" in published tables (medpy)
    hd95_max      larger of the 95th percentiles of d(P -> G) and d(G -> P) (MONAI)
    asd           mean of d(P -> G): "ASD" in published tables (medpy)
    assd          mean of d (MONAI's symmetric distance, medpy's assd since 0.5)
    surface_dice  share of d that is at most a tolerance (MONAI's surface Dice)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from graftseg.core.errors import Code, UserError

Mask = npt.NDArray[np.bool_]
Directed = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]  # the distances d(P -> G) and d(G -> P)
Protocol = Literal["standard", "paper"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
TOLERANCE = 1.0  # default tolerance of the surface Dice, in millimeters
ROUNDING = 1e-6  # Relative rounding error of distances. Headers store spacings in single precision.


def as_protocol(where: str | Path, name: str) -> Protocol:
    """Return the protocol of this name. Raise an error if it is unknown."""
    for protocol in PROTOCOLS:
        if protocol == name:
            return protocol
    raise UserError(Code.OPTION_INVALID, where, f"unknown protocol {name!r}", f"use {' or '.join(PROTOCOLS)}")


@dataclass(frozen=True)
class Scores:
    """Scores of one predicted mask. Distances are in voxels, or in millimeters if a spacing was given."""

    dice: float
    jaccard: float
    hd95: float
    hd95_max: float
    asd: float
    assd: float
    surface_dice: float


def score(
    prediction: Mask,
    reference: Mask,
    *,
    spacing: Sequence[float] | None = None,
    protocol: Protocol = "standard",
    tolerance: float = TOLERANCE,
) -> Scores:
    """Return all metrics of a class. ``protocol`` is for empty masks, and ``tolerance`` for the surface Dice."""
    _require_pair(prediction, reference)
    has_prediction, has_reference = bool(prediction.any()), bool(reference.any())
    if not (has_prediction and has_reference):
        worst = math.hypot(*np.multiply(prediction.shape, 1.0 if spacing is None else spacing))
        return score_empty(has_prediction, has_reference, worst=worst, protocol=protocol)
    distances = surface_distances(prediction, reference, spacing)
    pooled = np.concatenate(distances)
    return Scores(
        dice=dice(prediction, reference),
        jaccard=jaccard(prediction, reference),
        hd95=float(np.percentile(pooled, 95)),
        hd95_max=max(float(np.percentile(directed, 95)) for directed in distances),
        asd=float(distances[0].mean()),
        assd=float(pooled.mean()),
        surface_dice=float((pooled <= tolerance * (1 + ROUNDING)).mean()),
    )


def score_empty(has_prediction: bool, has_reference: bool, *, worst: float, protocol: Protocol) -> Scores:
    """Return the scores of a pair of masks of which at least one is empty.

    ``standard``: two empty masks agree (overlap 1, distances 0). If only one mask is empty, the scores are the worst
    possible: the overlap is 0, and every distance is ``worst`` (the diagonal of the image).
    ``paper``: an empty prediction scores 0 for every metric, as in the published code, even for an empty reference.
    Distances of 0 lower the mean distance. A nonempty prediction with an empty reference, which fails in the published
    code, has overlap 0 and NaN distances, which every mean ignores.
    """
    if protocol == "paper":
        overlap, distance = 0.0, math.nan if has_prediction else 0.0
    elif has_prediction or has_reference:
        overlap, distance = 0.0, worst
    else:
        overlap, distance = 1.0, 0.0
    return Scores(overlap, overlap, distance, distance, distance, distance, surface_dice=overlap)


def dice(prediction: Mask, reference: Mask) -> float:
    """Return the Dice coefficient; 1 if both masks are empty."""
    _require_pair(prediction, reference)
    common = np.count_nonzero(prediction & reference)
    total = np.count_nonzero(prediction) + np.count_nonzero(reference)
    return 2.0 * common / total if total else 1.0


def jaccard(prediction: Mask, reference: Mask) -> float:
    """Return intersection over union; 1 if both masks are empty."""
    _require_pair(prediction, reference)
    union = np.count_nonzero(prediction | reference)
    return np.count_nonzero(prediction & reference) / union if union else 1.0


def surface_distances(prediction: Mask, reference: Mask, spacing: Sequence[float] | None = None) -> Directed:
    """Return ``d(P -> G)`` and ``d(G -> P)``, one number per surface voxel. Neither mask may be empty."""
    from scipy import ndimage
    from scipy.spatial import KDTree

    _require_pair(prediction, reference)
    if not (prediction.any() and reference.any()):
        raise ValueError("an empty mask has no surface")
    scale = np.ones(prediction.ndim) if spacing is None else np.array(spacing, dtype=np.float64)
    if scale.shape != (prediction.ndim,):
        raise ValueError(f"spacing has {scale.size} values, but the masks have {prediction.ndim} axes")
    box = ndimage.find_objects((prediction | reference).view(np.uint8))[0]
    cropped = (prediction[box], reference[box])
    P, G = (np.argwhere(mask & ~ndimage.binary_erosion(mask)) * scale for mask in cropped)
    # K-d trees are about five times as fast as distance transforms and release the GIL.
    # Balancing the trees costs more than it saves, because each tree is queried only once.
    tree_P, tree_G = (KDTree(points, leafsize=32, compact_nodes=False, balanced_tree=False) for points in (P, G))
    return np.asarray(tree_G.query(P)[0]), np.asarray(tree_P.query(G)[0])


def _require_pair(prediction: Mask, reference: Mask) -> None:
    if prediction.shape != reference.shape:
        raise ValueError(f"masks of different shapes: {prediction.shape} and {reference.shape}")
    if prediction.dtype != np.bool_ or reference.dtype != np.bool_:
        raise ValueError(f"masks must be boolean, not {prediction.dtype} and {reference.dtype}")
