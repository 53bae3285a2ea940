"""The device of a plan, and the cost of a step in operations, bytes and seconds, estimated without running the step."""

import os
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

import torch
from torch.utils.flop_counter import FlopCounterMode

from graftseg.core.devices import choose_device
from graftseg.core.phrases import counted
from graftseg.networks import NetworkSettings, build_network, dimensions_of, parameter_count, stride_of

GIB = 2**30
ABSENT_GPU = 16 * GIB
"""Assumed memory of a GPU that is not in this machine."""

FLOAT_BYTES = 4
ACTIVATION_COPIES = 1.5
"""Memory of activations, gradients and workspace, relative to the activations that are saved for the backward pass."""
LOSS_COPIES = 10
"""Number of arrays with the size of the class probabilities that losses and pseudo-labels need."""
WEIGHT_COPIES = 5
"""Number of arrays with the size of the weights: student, teacher, gradients and two momenta."""


@dataclass(frozen=True)
class Target:
    """The device of a plan, with its memory in bytes. A device that is ``present`` in this machine can be timed."""

    kind: Literal["cpu", "cuda"]
    memory: int
    name: str
    present: bool

    @property
    def usable_fraction(self) -> float:
        """Return the fraction of the memory that training may use. On a CPU, other programs need memory, too."""
        return 0.85 if self.kind == "cuda" else 0.5


@dataclass(frozen=True)
class NetworkLoad:
    """The cost of a network.

    operations: operations of a forward pass per voxel
    saved_bytes: bytes per voxel that a forward pass saves for the backward pass
    parameters: number of parameters
    """

    operations: float
    saved_bytes: float
    parameters: int


@dataclass(frozen=True)
class Speed:
    """The speed of a device.

    rate: operations per second
    fixed: additional seconds per step
    source: origin of these numbers
    """

    rate: float
    fixed: float
    source: str

    def seconds(self, operations: float) -> float:
        """Return the seconds of a step with this number of operations."""
        return self.fixed + operations / self.rate


SPEEDS = {
    "cuda": Speed(25e12, 0.010, "from a table (a typical GPU, a sixth of the measured speed of an H200)"),
    "cpu": Speed(60e9, 0.02, "from a table (two cores of a server)"),
}


@lru_cache(maxsize=64)
def network_load(network: NetworkSettings, channels: int, classes: int) -> NetworkLoad:
    """Return the cost of a network, counted on a small patch without allocating memory."""
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
    saved = sum(storage.nbytes() for storage in storages.values()) - FLOAT_BYTES * parameters
    return NetworkLoad(counter.get_total_flops() / prod(patch), max(saved, FLOAT_BYTES) / prod(patch), parameters)


def step_bytes(load: NetworkLoad, patch: tuple[int, ...], batch: int, classes: int) -> int:
    """Estimate the peak memory in bytes of a step with ``batch`` images in float32. With bf16, a step needs less."""
    voxels = batch * prod(patch)
    activations = ACTIVATION_COPIES * load.saved_bytes * voxels + LOSS_COPIES * classes * FLOAT_BYTES * voxels
    return int(activations + WEIGHT_COPIES * FLOAT_BYTES * load.parameters)


def target_of(device: str) -> Target:
    """Return the device with this name. On a machine without a GPU, ``cuda`` means a typical GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        return Target("cuda", ABSENT_GPU, "a typical GPU (none in this machine)", False)
    chosen = choose_device(device)
    if chosen.type == "cpu":
        threads = torch.get_num_threads()
        # use the total memory, because the free memory varies between calls
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return Target("cpu", memory, f"this CPU with {counted(threads, 'thread')}", True)
    properties = torch.cuda.get_device_properties(chosen)
    return Target("cuda", int(properties.total_memory), str(properties.name), True)
