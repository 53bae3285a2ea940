"""The cost of a training step of each method, in forward passes over the labeled images of a batch.

A backward pass costs two forward passes.
"""

from collections.abc import Mapping
from typing import Any

from graftseg.core.planned_methods import PLANNED_METHODS

SUPERVISED = 3.0
"""Cost of a step of the methods that use only labeled images."""
SELF_TRAINING = {name: method.cost for name, method in PLANNED_METHODS.items()}
"""Costs of the methods that the planner can choose, including the passes of the teacher."""
OTHER_SELF_TRAINING = 7.0
"""Assumed cost of the other methods that use unlabeled images."""
UNMIXED = 7.0
"""Cost of copy-paste without pasting, where all labeled and all unlabeled images pass through the student."""


def step_cost(method: str, settings: Mapping[str, Any], *, uses_unlabeled: bool) -> float:
    """Return the cost of a step of a method with these settings."""
    if not uses_unlabeled:
        return SUPERVISED
    return UNMIXED if settings.get("direction") == "none" else SELF_TRAINING.get(method, OTHER_SELF_TRAINING)
