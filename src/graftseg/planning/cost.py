"""The cost of a step: operations and memory of a network, counted without running it, and seconds on a device."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from graftseg.networks import NetworkSettings, dimensions_of, stride_of
from graftseg.planning.target import Target

FLOAT = 4
ACTIVATION_COPIES = 1.5
"""Saved activations, gradients and workspace, relative to the saved activations."""
LOSS_COPIES = 10
"""Arrays of the size of all probabilities that losses and pseudo-labels need."""
WEIGHT_COPIES = 5
"""Student, teacher, gradients and two momenta."""

PRETRAIN, SELF_TRAINING, SUPERVISED = 1.5, 4.0, 3.0
"""Cost of a step in forward passes per image of one stream. A backward pass counts as two forward passes.

Pre-training mixes two images into one. In self-training the teacher also sees every unlabeled image once.
"""


@dataclass(frozen=True)
class NetworkLoad:
    """The cost of a forward pass: operations and saved bytes per voxel, and the number of parameters."""

    operations: float
    saved_bytes: float
    parameters: int


@dataclass(frozen=True)
class Speed:
    """The speed of a device: a fixed time per step and operations per second. ``source`` is where they come from."""

    rate: float
    fixed: float
    source: str

    def seconds(self, operations: float) -> float:
        """Return the seconds of a step with this many operations."""
        return self.fixed + operations / self.rate


SPEEDS = {
    "cuda": Speed(25e12, 0.010, "from a table (a typical GPU, a sixth of the measured speed of an H200)"),
    "cpu": Speed(60e9, 0.02, "from a table (two cores of a server)"),
}


@lru_cache(maxsize=64)
def network_load(network: NetworkSettings, channels: int, classes: int) -> NetworkLoad:
    """Count the cost of a network on a small patch, without allocating memory (torch device ``meta``)."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from graftseg.networks import build_network, parameter_count

    patch = (4 * stride_of(network),) * dimensions_of(network.name)
    with torch.device("meta"):
        built = build_network(network, channels, classes).train()
        images = torch.empty(1, channels, *patch)
    storages: dict[int, torch.UntypedStorage] = {}

    def record(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    counter = FlopCounterMode(display=False)
    with counter, torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        built(images)
    parameters = parameter_count(built)
    saved = sum(storage.nbytes() for storage in storages.values()) - FLOAT * parameters
    return NetworkLoad(counter.get_total_flops() / prod(patch), max(saved, FLOAT) / prod(patch), parameters)


def step_bytes(load: NetworkLoad, patch: tuple[int, ...], batch: int, classes: int) -> int:
    """Estimate the peak memory of a step with ``batch`` images in float32; bf16 needs less."""
    voxels = batch * prod(patch)
    activations = ACTIVATION_COPIES * load.saved_bytes * voxels + LOSS_COPIES * classes * FLOAT * voxels
    return int(activations + WEIGHT_COPIES * FLOAT * load.parameters)


def tabulated_speed(target: Target) -> Speed:
    """Return the typical speed of a kind of device, for a device that cannot be timed."""
    return SPEEDS[target.kind]
