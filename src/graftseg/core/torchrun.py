"""Environment variables that torchrun sets for its processes. Reading them does not need torch."""

import os
from pathlib import Path

from graftseg.core.errors import Code, UserError

EXIT_STATUS = "GRAFTSEG_EXIT_STATUS"
"""Environment variable, set by ``graftseg train --devices``: path of the file for the final exit status."""
TIMEOUT_SECONDS = 600.0
"""Time in which other ranks must answer. The environment variable ``GRAFTSEG_RANK_TIMEOUT`` overrides this value."""
MAX_TIMEOUT_SECONDS = 7 * 24 * 3600
TIMEOUT_VARIABLE = "GRAFTSEG_RANK_TIMEOUT"


def is_launched() -> bool:
    """Return whether torchrun started this process as one of several ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Return whether this process is rank 0, or the only process."""
    return not is_launched() or os.environ.get("RANK") == "0"


def launch_name() -> str:
    """Return the name of the launch. It stays the same if torchrun restarts the ranks."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return f"process {os.getppid()}" if name == "none" else name


def restarts() -> int:
    """Return how often torchrun has restarted the ranks."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def timeout_seconds() -> float:
    """Return the time in which other ranks must answer. Raise a UserError for an invalid environment variable."""
    text = os.environ.get(TIMEOUT_VARIABLE) or str(TIMEOUT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:  # also for NaN
        remedy = f"set a number of seconds above 0, and at most {MAX_TIMEOUT_SECONDS}"
        raise UserError(Code.OPTION_INVALID, f"{TIMEOUT_VARIABLE}={text}", "not a valid timeout", remedy)
    return seconds


def reported_status(status: int, *, is_final: bool) -> int:
    """Return the exit status of this process for a command with the exit status ``status``.

    torchrun restarts ranks that exit with an error. With ``--devices``, all ranks therefore exit with 0 after a final
    error, which a restart would only repeat, and rank 0 writes the status to a file.
    """
    file = os.environ.get(EXIT_STATUS)
    if file is None or not is_launched() or not is_final:
        return status
    if is_first():
        Path(file).write_text(str(status))
    return 0
