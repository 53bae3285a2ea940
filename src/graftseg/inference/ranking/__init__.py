"""Ranking of unlabeled scans for annotation. The help of the command line imports this file, so it must load fast."""

from typing import Literal

Order = Literal["uncertainty", "coverage"]
DEFAULT_ORDER: Order = "uncertainty"  # the order of ``rank`` and ``annotate`` if none is requested
