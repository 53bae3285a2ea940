"""Orders of the ranking. This module imports nothing heavy, because the command line needs it for its help."""

from typing import Literal

Order = Literal["uncertainty", "coverage"]
DEFAULT_ORDER: Order = "uncertainty"
"""The order of ``rank`` and ``annotate`` if none is requested."""
