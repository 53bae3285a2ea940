"""What a step costs: operations and bytes of a network, counted without running it, and seconds by a device's speed."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from graftseg.networks import NetworkSettings, dimensions_of, stride_of
from graftseg.planning.target import Target

FLOAT = 4
ACTIVATION_COPIES = 1.5
"""Gradients and work space of the kernels, beside what the forward pass keeps for the backward one."""
LOSS_COPIES = 10
"""Arrays of the size of all probabilities that losses and pseudo-labels take."""
WEIGHT_COPIES = 5
"""Student, teacher, gradients and two momenta."""

PRETRAIN, SELF_TRAINING, SUPERVISED = 1.5, 4.0, 3.0
"""Forward passes of an image that one image of a batch costs in a step: a backward pass counts as two of them.

Pre-training mixes two images into one. In self-training the teacher sees every unlabeled image once besides.
"""


@dataclass(frozen=True)
class NetworkLoad:
    """What a network costs: operations and kept bytes of the forward pass for each voxel of an image."""

    operations: float
    kept: float
    parameters: int


@dataclass(frozen=True)
class Speed:
    """Seconds of a step: a fixed part, and operations by their rate. ``source`` says where the numbers come from."""

    rate: float
    fixed: float
    source: str

    def seconds(self, operations: float) -> float:
        """Seconds of so many operations."""
        return self.fixed + operations / self.rate


SPEEDS = {
    "cuda": Speed(25e12, 0.010, "from a table: a usual GPU at a sixth of the rate that one H200 was measured at"),
    "cpu": Speed(60e9, 0.02, "from a table: two cores of a server"),
}


@lru_cache(maxsize=64)
def network_load(network: NetworkSettings, channels: int, classes: int) -> NetworkLoad:
    """Count on a patch of a few voxels at the coarsest level, without memory for it: on torch's device ``meta``."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from graftseg.networks import build_network, parameter_count

    patch = (4 * stride_of(network),) * dimensions_of(network.name)
    with torch.device("meta"):
        built = build_network(network, channels, classes).train()
        images = torch.empty(1, channels, *patch)
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    counter = FlopCounterMode(display=False)
    with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        built(images)
    parameters = parameter_count(built)
    saved = sum(storage.nbytes() for storage in kept.values()) - FLOAT * parameters
    return NetworkLoad(counter.get_total_flops() / prod(patch), max(saved, FLOAT) / prod(patch), parameters)


def step_bytes(load: NetworkLoad, patch: tuple[int, ...], batch: int, classes: int) -> int:
    """The most that a step holds, about, with ``batch`` images through the student at once, in float32.

    With bf16 less is needed; the difference is left as a margin.
    """
    voxels = batch * prod(patch)
    activations = ACTIVATION_COPIES * load.kept * voxels + LOSS_COPIES * classes * FLOAT * voxels
    return int(activations + WEIGHT_COPIES * FLOAT * load.parameters)


def tabulated_speed(target: Target) -> Speed:
    """What is known of such devices, where the one at hand is not timed."""
    return SPEEDS[target.kind]
