"""The patch, the batch and the network of a training step."""

from dataclasses import dataclass
from math import prod

from graftseg.networks import NetworkSettings, stride_of
from graftseg.planning.choices import Choice, Choices, format_size
from graftseg.planning.cost import GIB, Target, network_load, step_bytes
from graftseg.planning.facts import Facts
from graftseg.planning.frame import Frame

MAX_LEVELS = 5
MIN_COARSE_VOXELS = 3
"""Voxels that the shortest axis of a typical scan must have at the coarsest level of the network."""
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
    """Patch, batch, network and memory of a step. ``is_resident`` is true if all scans fit into the memory, too."""

    patch: tuple[int, ...]
    batch: int
    network: NetworkSettings
    step_bytes: int
    store_bytes: int
    is_resident: bool
    choices: Choices


def choose_step_shape(facts: Facts, frame: Frame, target: Target) -> StepShape:
    """Choose the network, the batch and the largest patch that fits into the memory."""
    size = frame.patch_size
    levels = _levels(size)
    name = "unet-2d" if frame.dimensions == 2 else "vnet-bn"
    is_cpu = target.kind == "cpu"
    network = NetworkSettings.model_validate(
        {
            "name": name,
            "width": NETWORK_WIDTHS[target.kind],
            "levels": levels,
            "dropout": not is_cpu,
            "leaky": True,
            "channels_last": is_cpu,
        }
    )
    stored = frame.voxels * (2 * facts.channels + 1)
    resident = stored < MAX_STORE_FRACTION * target.memory
    room = target.usable_fraction * target.memory - (stored if resident else 0)
    patch, batch = _fitted(facts, frame, target, network, room)
    needed = step_bytes(network_load(network, facts.channels, len(facts.classes)), patch, batch, len(facts.classes))
    choices = _network_choices(network, size, target) | _patch_choices(frame, patch, batch, target)
    return StepShape(patch, batch, network, needed, stored, resident, choices)


def _levels(size: tuple[int, ...]) -> int:
    """Return the largest number of levels up to 5 with at least 3 voxels per axis at the coarsest level, or else 2."""
    levels = 2
    while levels < MAX_LEVELS and min(size) >= MIN_COARSE_VOXELS * 2**levels:
        levels += 1
    return levels


def _fitted(
    facts: Facts, frame: Frame, target: Target, network: NetworkSettings, room: float
) -> tuple[tuple[int, ...], int]:
    """Reduce the patch until it fits into the memory, but reduce the batch before the patch becomes too small."""
    kind = (target.kind, frame.dimensions)
    load, classes = network_load(network, facts.channels, len(facts.classes)), len(facts.classes)
    stride = stride_of(network)
    patch = tuple(max(2, -(-size // stride)) * stride for size in frame.patch_size)
    while prod(patch) > MAX_PATCH_VOXELS[kind] and (smaller := _smaller(patch, frame, network)):
        patch = smaller
    for batch in BATCHES[kind]:
        fitting = patch
        while step_bytes(load, fitting, batch, classes) > room:
            reduced = _smaller(fitting, frame, network)
            if reduced is None or (prod(reduced) < MIN_PATCH_VOXELS[frame.dimensions] and batch != BATCHES[kind][-1]):
                break
            fitting = reduced
        else:
            return fitting, batch
    return fitting, BATCHES[kind][-1]


def _smaller(patch: tuple[int, ...], frame: Frame, network: NetworkSettings) -> tuple[int, ...] | None:
    """Return a patch that is one stride shorter along its longest axis in mm, or None if no axis can be shorter."""
    stride = stride_of(network)
    spacing = frame.spacing[: len(patch)]
    lengths = [n * step if n > 2 * stride else 0.0 for n, step in zip(patch, spacing, strict=True)]
    if not any(lengths):
        return None
    longest = lengths.index(max(lengths))
    return tuple(n - stride if axis == longest else n for axis, n in enumerate(patch))


def _network_choices(network: NetworkSettings, size: tuple[int, ...], target: Target) -> Choices:
    kind = {"unet-2d": "the U-Net for slices", "vnet-bn": "the V-Net for volumes"}[network.name]
    shortest, left = min(size), max(1, min(size) // stride_of(network))
    levels = f"at most {MAX_LEVELS}; the shortest axis has {shortest} voxels, reduced to {left} at the coarsest level"
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


def _patch_choices(frame: Frame, patch: tuple[int, ...], batch: int, target: Target) -> Choices:
    size = frame.patch_size
    covered = prod(min(1.0, p / n) for p, n in zip(patch, size, strict=True))
    whole = "slice" if frame.is_stacked else "scan"
    if covered > 0.999:
        seen = f"a complete typical {whole} ({format_size(size)} voxels)"
    else:
        room = f"limited by {target.memory / GIB:.0f} GiB of memory and by the time of a step"
        seen = f"{covered:.0%} of a typical {whole} ({format_size(size)} voxels), {room}"
    preferred = BATCHES[target.kind, frame.dimensions][0]
    fewer = "" if batch == preferred else f"; {preferred} images do not fit into the memory"
    foreground = Choice(0.0, "a patch shows nearly the complete scan, so its position does not matter")
    if frame.is_stacked or covered < MIN_COVERED:
        foreground = Choice(FOREGROUND_FRACTION, FOREGROUND_REASON)
    paired = "as many as labeled images, because each labeled image is paired with an unlabeled image"
    return {
        "batches.patch": Choice(list(patch), f"{seen}, in multiples of the network's stride"),
        "batches.labeled": Choice(batch, f"even, because copy-paste combines the two halves of a batch{fewer}"),
        "batches.unlabeled": Choice(batch, paired),
        "batches.foreground": foreground,
    }
