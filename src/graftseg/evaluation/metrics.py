"""How well a mask agrees with its reference: overlap and surface distances of one class of one case.

Masks are boolean arrays ``(*space)``, 2-D or 3-D. Distances are in voxels unless a spacing in mm is given.

The surface of a mask is what one erosion with the connectivity-1 element removes; beyond the array lies
background, so an object that touches the border has a surface there, and one in a volume a single slice thick
is all surface. ``d(P -> G)`` holds, for each surface voxel of the prediction P, the Euclidean distance to the
nearest surface voxel of the reference G.

    dice     2 |P ∩ G| / (|P| + |G|)
    jaccard  |P ∩ G| / |P ∪ G|
    hd95     95th percentile of d(P -> G) and d(G -> P) pooled: the "95HD" of this field's tables (medpy's)
    hd95_max the larger of the two directed 95th percentiles (MONAI's)
    asd      mean of d(P -> G) alone: the "ASD" of this field's tables (medpy's)
    assd     mean of d(P -> G) and d(G -> P) pooled (MONAI's symmetric one, and medpy's since 0.5)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Directed = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
Protocol = Literal["standard", "paper"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


@dataclass(frozen=True)
class Scores:
    """The agreement of one predicted mask with its reference; distances in voxels or in mm, as asked."""

    dice: float
    jaccard: float
    hd95: float
    hd95_max: float
    asd: float
    assd: float


def score(
    prediction: Mask,
    reference: Mask,
    *,
    spacing: Sequence[float] | None = None,
    protocol: Protocol = "standard",
) -> Scores:
    """All metrics of one class of one case; ``protocol`` decides only what an empty mask scores."""
    _require_pair(prediction, reference)
    has_prediction, has_reference = bool(prediction.any()), bool(reference.any())
    if not (has_prediction and has_reference):
        worst = math.hypot(*np.multiply(prediction.shape, 1.0 if spacing is None else spacing))
        return score_empty(has_prediction, has_reference, worst=worst, protocol=protocol)
    distances = surface_distances(prediction, reference, spacing)
    return Scores(
        dice=dice(prediction, reference),
        jaccard=jaccard(prediction, reference),
        hd95=hd95_pooled(distances),
        hd95_max=hd95_max(distances),
        asd=asd(distances),
        assd=assd(distances),
    )


def score_empty(has_prediction: bool, has_reference: bool, *, worst: float, protocol: Protocol) -> Scores:
    """What a pair of masks scores when at least one of them is empty and has no surface to measure from.

    ``standard``: two empty masks agree wholly (overlap 1, distances 0); one empty mask is the worst there can
    be (overlap 0, distances ``worst``, the diagonal of the image).
    ``paper``: an empty prediction scores 0 throughout, as in the public code of this field, although that
    lowers the mean distances and holds even where the reference is empty too. An empty reference, which that
    code cannot score, gives overlap 0 and no distances (NaN: left out of every mean).
    """
    if protocol == "paper":
        overlap, distance = 0.0, math.nan if has_prediction else 0.0
    elif has_prediction or has_reference:
        overlap, distance = 0.0, worst
    else:
        overlap, distance = 1.0, 0.0
    return Scores(overlap, overlap, distance, distance, distance, distance)


def dice(prediction: Mask, reference: Mask) -> float:
    """Twice the common voxels over the sum of both counts; 1 if both masks are empty."""
    _require_pair(prediction, reference)
    common = np.count_nonzero(prediction & reference)
    total = np.count_nonzero(prediction) + np.count_nonzero(reference)
    return 2.0 * common / total if total else 1.0


def jaccard(prediction: Mask, reference: Mask) -> float:
    """The common voxels over those of the union; 1 if both masks are empty."""
    _require_pair(prediction, reference)
    union = np.count_nonzero(prediction | reference)
    return np.count_nonzero(prediction & reference) / union if union else 1.0


def surface_distances(prediction: Mask, reference: Mask, spacing: Sequence[float] | None = None) -> Directed:
    """``d(P -> G)`` and ``d(G -> P)``, one number for each surface voxel; both masks must have a voxel.

    A k-d tree over the surface voxels answers. For two ellipsoids that fill a 200x200x90 grid it takes 0.1 s
    where distance transforms take 0.5 s; it needs memory for the surfaces only, and other threads run
    meanwhile. The transforms win only for very large surfaces: masks that are mostly noise.
    """
    from scipy.spatial import KDTree

    _require_pair(prediction, reference)
    if not (prediction.any() and reference.any()):
        raise ValueError("an empty mask has no surface")
    scale = np.ones(prediction.ndim) if spacing is None else np.array(spacing, dtype=np.float64)
    if scale.shape != (prediction.ndim,):
        raise ValueError(f"a spacing of {scale.size} numbers for masks of {prediction.ndim} axes")
    prediction, reference = _crop_jointly(prediction, reference)
    P, G = _surface(prediction) * scale, _surface(reference) * scale
    # Median splits cost more than they save: each tree answers one batch of queries only.
    tree_P, tree_G = (KDTree(points, leafsize=32, compact_nodes=False, balanced_tree=False) for points in (P, G))
    return np.asarray(tree_G.query(P)[0]), np.asarray(tree_P.query(G)[0])


def hd95_pooled(distances: Directed) -> float:
    """95th percentile of both directed distance sets taken together, linear between ranks."""
    return float(np.percentile(np.concatenate(distances), 95))


def hd95_max(distances: Directed) -> float:
    """The larger of the 95th percentiles of the two directed distance sets."""
    return max(float(np.percentile(directed, 95)) for directed in distances)


def asd(distances: Directed) -> float:
    """Mean distance from the surface of the prediction to that of the reference; not symmetric."""
    return float(distances[0].mean())


def assd(distances: Directed) -> float:
    """Mean over all surface voxels of both masks of the distance to the other surface."""
    return float(np.concatenate(distances).mean())


def _require_pair(prediction: Mask, reference: Mask) -> None:
    if prediction.shape != reference.shape:
        raise ValueError(f"masks of different shapes: {prediction.shape} and {reference.shape}")
    if prediction.dtype != np.bool_ or reference.dtype != np.bool_:
        raise ValueError(f"masks must be boolean, not {prediction.dtype} and {reference.dtype}")


def _crop_jointly(prediction: Mask, reference: Mask) -> tuple[Mask, Mask]:
    """Both masks within the box around their union; beyond it, as beyond the array, is background."""
    from scipy import ndimage

    box = ndimage.find_objects((prediction | reference).view(np.uint8))[0]
    return prediction[box], reference[box]


def _surface(mask: Mask) -> npt.NDArray[np.intp]:
    """Indices ``(N, axes)`` of the voxels that have a background neighbour across a face."""
    from scipy import ndimage

    return np.argwhere(mask & ~ndimage.binary_erosion(mask))
