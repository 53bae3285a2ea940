"""The network, the patch size and the batch size of a plan."""

from dataclasses import dataclass
from math import prod

from graftseg.networks import NetworkName, NetworkSettings, stride_of
from graftseg.planning.choices import Choice, Choices, format_size
from graftseg.planning.cost import GIB, Target, network_load, step_bytes
from graftseg.planning.facts import Facts
from graftseg.planning.frame import Frame

MAX_LEVELS = 5
MIN_COARSE_VOXELS = 3
"""Minimum number of voxels along the shortest axis of a typical scan at the coarsest level of the network."""
MAX_PATCH_VOXELS = {("cpu", 2): 192**2, ("cpu", 3): 64**3, ("cuda", 2): 512**2, ("cuda", 3): 128**3}
"""Maximum number of voxels of a patch, by device and dimensions. It limits the time of a step."""
MIN_PATCH_VOXELS = {2: 64**2, 3: 48**3}
"""Minimum number of voxels of a patch, by dimensions. If a smaller patch is needed, the batch is reduced instead."""
BATCHES = {("cpu", 2): (4, 2), ("cpu", 3): (4, 2), ("cuda", 2): (12, 8, 4, 2), ("cuda", 3): (4, 2)}
"""Numbers of labeled images in a batch, preferred number first. On a GPU, the first number is the published number."""
NETWORK_WIDTHS = {"cpu": 8, "cuda": 16}
MAX_STORE_FRACTION = 0.6
"""If the prepared scans exceed this fraction of the memory, training reads them from disk."""
MIN_COVERED = 0.8
"""If a patch contains at least this fraction of a typical scan, patches are not centered on the foreground."""
FOREGROUND_FRACTION = 0.33
FOREGROUND_REASON = (
    "a third of the patches are centered on a foreground voxel, because many random patches show only background; "
    "in unlabeled scans, the foreground is predicted by the first stage"
)


@dataclass(frozen=True)
class StepShape:
    """The size of a training step and its memory.

    patch: size of a patch in voxels
    batch: number of labeled images, and of unlabeled images, in a batch
    network: settings of the network
    step_bytes: estimated memory of a step
    store_bytes: size of the prepared scans
    is_resident: whether the prepared scans fit into the memory
    choices: the settings that follow
    """

    patch: tuple[int, ...]
    batch: int
    network: NetworkSettings
    step_bytes: int
    store_bytes: int
    is_resident: bool
    choices: Choices


def choose_step_shape(facts: Facts, frame: Frame, target: Target) -> StepShape:
    """Choose the network, the batch and the largest patch that fits into the memory."""
    is_cpu, width, levels = target.kind == "cpu", NETWORK_WIDTHS[target.kind], _levels(frame.image_size)
    name: NetworkName = "unet-2d" if frame.dimensions == 2 else "vnet-bn"
    network = NetworkSettings(
        name=name, width=width, levels=levels, dropout=not is_cpu, leaky=True, channels_last=is_cpu
    )
    store_bytes = frame.voxels * (2 * facts.channels + 1)
    is_resident = store_bytes < MAX_STORE_FRACTION * target.memory
    free_bytes = target.usable_fraction * target.memory - (store_bytes if is_resident else 0)
    patch, batch = _largest_patch(facts, frame, target, network, free_bytes)
    classes = len(facts.classes)
    needed = step_bytes(network_load(network, facts.channels, classes), patch, batch, classes)
    choices = _network_choices(network, frame.image_size, target) | _patch_choices(frame, patch, batch, target)
    return StepShape(patch, batch, network, needed, store_bytes, is_resident, choices)


def _levels(size: tuple[int, ...]) -> int:
    """Return the largest number of levels that leaves enough voxels per axis at the coarsest level, but at least 2."""
    levels = 2
    while levels < MAX_LEVELS and min(size) >= MIN_COARSE_VOXELS * 2**levels:
        levels += 1
    return levels


def _largest_patch(
    facts: Facts, frame: Frame, target: Target, network: NetworkSettings, free_bytes: float
) -> tuple[tuple[int, ...], int]:
    """Return the largest patch that fits into the memory, and the batch size.

    The batch is reduced if the patch would otherwise become too small.
    """
    kind = (target.kind, frame.dimensions)
    load, classes = network_load(network, facts.channels, len(facts.classes)), len(facts.classes)
    stride = stride_of(network)
    patch = tuple(max(2, -(-size // stride)) * stride for size in frame.image_size)
    while prod(patch) > MAX_PATCH_VOXELS[kind] and (smaller := _smaller(patch, frame, network)):
        patch = smaller
    for batch in BATCHES[kind]:
        reduced = patch
        while step_bytes(load, reduced, batch, classes) > free_bytes:
            smaller = _smaller(reduced, frame, network)
            if smaller is None or (prod(smaller) < MIN_PATCH_VOXELS[frame.dimensions] and batch != BATCHES[kind][-1]):
                break
            reduced = smaller
        else:
            return reduced, batch
    return reduced, BATCHES[kind][-1]


def _smaller(patch: tuple[int, ...], frame: Frame, network: NetworkSettings) -> tuple[int, ...] | None:
    """Return a patch that is one stride shorter along its longest side in mm, or None if no side can be shorter."""
    stride = stride_of(network)
    spacing = frame.spacing[: len(patch)]
    lengths = [n * step if n > 2 * stride else 0.0 for n, step in zip(patch, spacing, strict=True)]
    if not any(lengths):
        return None
    longest = lengths.index(max(lengths))
    return tuple(n - stride if axis == longest else n for axis, n in enumerate(patch))


def _network_choices(network: NetworkSettings, size: tuple[int, ...], target: Target) -> Choices:
    kind = {"unet-2d": "the U-Net for slices", "vnet-bn": "the V-Net for volumes"}[network.name]
    shortest, coarsest = min(size), max(1, min(size) // stride_of(network))
    levels = f"at most {MAX_LEVELS}; the shortest axis has {shortest} voxels, and {coarsest} at the coarsest level"
    width = dropout = "as published"
    if target.kind == "cpu":
        width = "half the published width, because a CPU is slow"
        dropout = "off, because a narrow network in a short run needs no dropout"
    leaky = "leaky ReLU, so that no feature stays at zero"
    layout = "faster on a CPU; changes only the rounding" if network.channels_last else "no gain on a GPU"
    return {
        "network.leaky": Choice(network.leaky, leaky),
        "network.channels_last": Choice(network.channels_last, layout),
        "network.name": Choice(network.name, f"{kind}, as published"),
        "network.width": Choice(network.width, width),
        "network.levels": Choice(network.levels, levels),
        "network.dropout": Choice(network.dropout, dropout),
    }


def covered_fraction(frame: Frame, patch: tuple[int, ...]) -> float:
    """Return the fraction of a typical slice or volume that a patch shows."""
    return prod(min(1.0, n / size) for n, size in zip(patch, frame.image_size, strict=True))


def _patch_choices(frame: Frame, patch: tuple[int, ...], batch: int, target: Target) -> Choices:
    size = frame.image_size
    covered = covered_fraction(frame, patch)
    whole = "slice" if frame.is_stacked else "scan"
    if covered > 0.999:
        content = f"a complete typical {whole} ({format_size(size)} voxels)"
    else:
        limits = f"limited by {target.memory / GIB:.0f} GiB of memory and by the time of a step"
        content = f"{covered:.0%} of a typical {whole} ({format_size(size)} voxels), {limits}"
    preferred = BATCHES[target.kind, frame.dimensions][0]
    fewer = "" if batch == preferred else f"; {preferred} images do not fit into the memory"
    foreground = Choice(0.0, "a patch shows nearly the complete scan, so its position does not matter")
    if frame.is_stacked or covered < MIN_COVERED:
        foreground = Choice(FOREGROUND_FRACTION, FOREGROUND_REASON)
    paired = "as many as labeled images, because each labeled image is paired with an unlabeled image"
    return {
        "batches.patch": Choice(list(patch), f"{content}, in multiples of the network's stride"),
        "batches.labeled": Choice(batch, f"even, because copy-paste combines the two halves of a batch{fewer}"),
        "batches.unlabeled": Choice(batch, paired),
        "batches.foreground": foreground,
    }
