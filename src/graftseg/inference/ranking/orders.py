"""Orders of the ranking. The command line imports this module for its help, so it must load fast."""

from typing import Literal

Order = Literal["uncertainty", "coverage"]
DEFAULT_ORDER: Order = "uncertainty"
"""The order of ``rank`` and ``annotate`` if none is requested."""
