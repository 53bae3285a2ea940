"""The device that a plan is for, which need not be there."""

import os
from dataclasses import dataclass
from typing import Literal

GIB = 2**30
ABSENT_GPU = 16 * GIB
"""Memory of a GPU that is planned for and not there."""


@dataclass(frozen=True)
class Target:
    """A kind of device with its memory in bytes; one that is ``present`` is this machine's and can be timed."""

    kind: Literal["cpu", "cuda"]
    memory: int
    name: str
    present: bool

    @property
    def share(self) -> float:
        """Part of the memory that a training may take: a CPU's is needed by others too."""
        return 0.85 if self.kind == "cuda" else 0.5


def target_of(device: str) -> Target:
    """The device of a name, as a training takes it; ``cuda`` without a number need not be there."""
    import torch

    from graftseg.core.devices import choose_device

    if device == "cuda" and not torch.cuda.is_available():
        return Target("cuda", ABSENT_GPU, "a GPU that is not in this machine, taken to be a usual one", False)
    chosen = choose_device(device)
    if chosen.type == "cpu":
        threads = torch.get_num_threads()
        return Target("cpu", _main_memory(), f"this CPU with {threads} thread{'' if threads == 1 else 's'}", True)
    facts = torch.cuda.get_device_properties(chosen)
    return Target("cuda", int(facts.total_memory), str(facts.name), True)


def _main_memory() -> int:
    """All of the computer's memory; what is free changes from one moment to the next, and a plan should not."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
