"""What torchrun tells the processes that it starts, read without an import of torch."""

import os
from pathlib import Path

EXIT_STATUS = "GRAFTSEG_EXIT_STATUS"
"""Environment variable that names the file for the exit status of ranks, set by ``graftseg train --devices``."""


def is_launched() -> bool:
    """Return whether torchrun started this process as one of several ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Return whether this process is rank 0, or the only process."""
    return not is_launched() or os.environ.get("RANK") == "0"


def launch_name() -> str:
    """Return a name that all starts of one launch share, also after a restart."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return f"process {os.getppid()}" if name == "none" else name


def restarts() -> int:
    """Return how often torchrun has restarted the ranks."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def reported_status(status: int, *, is_final: bool) -> int:
    """Return the exit status of a rank. With ``--devices``, a final status is written to a file, and 0 is returned.

    torchrun restarts ranks that end with an error, which would only repeat a final error.
    """
    file = os.environ.get(EXIT_STATUS)
    if file is None or not is_launched() or not is_final:
        return status
    if is_first():
        Path(file).write_text(str(status))
    return 0
