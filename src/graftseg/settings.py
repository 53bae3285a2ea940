"""The base of every settings class: frozen, and an unknown key is an error."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MOST_STEPS = 10**9
"""More than any training has, or cases, or folds of them."""
MOST_VOXELS = 2**16
"""More than any scan has along an axis."""
MOST_IMAGES = 2**16
"""More than pass through a network together."""
Voxels = Annotated[int, Field(gt=0, le=MOST_VOXELS)]
"""A length along an axis."""


class Settings(BaseModel):
    """Settings are defined beside the code that reads them and composed by the recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
