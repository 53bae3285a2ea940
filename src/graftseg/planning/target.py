"""The device that a plan is for; it need not be in this machine."""

import os
from dataclasses import dataclass
from typing import Literal

GIB = 2**30
ABSENT_GPU = 16 * GIB
"""Assumed memory of a GPU that is not in this machine."""


@dataclass(frozen=True)
class Target:
    """A device with its memory in bytes; ``present``: it is in this machine and can be timed."""

    kind: Literal["cpu", "cuda"]
    memory: int
    name: str
    present: bool

    @property
    def share(self) -> float:
        """Return the share of the memory that training may use; other programs need memory of a CPU, too."""
        return 0.85 if self.kind == "cuda" else 0.5


def target_of(device: str) -> Target:
    """Return the device with this name; ``cuda`` without a number need not be in this machine."""
    import torch

    from graftseg.core.devices import choose_device

    if device == "cuda" and not torch.cuda.is_available():
        return Target("cuda", ABSENT_GPU, "a typical GPU (none in this machine)", False)
    chosen = choose_device(device)
    if chosen.type == "cpu":
        threads = torch.get_num_threads()
        return Target("cpu", _main_memory(), f"this CPU with {threads} thread{'' if threads == 1 else 's'}", True)
    facts = torch.cuda.get_device_properties(chosen)
    return Target("cuda", int(facts.total_memory), str(facts.name), True)


def _main_memory() -> int:
    """Return the total memory of the computer, because the free memory would make plans vary."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
