"""The published row that a recipe repeats, so that a table can show it beside our own."""

from typing import Literal

from pydantic import Field

from graftseg.core.settings import MOST_VOXELS, Settings


class Published(Settings):
    """Figures of a published table: overlaps in percent, distances in voxels.

    ``selection`` says on which cases their checkpoint was chosen.
    """

    table: str
    row: str
    dice: float = Field(ge=0, le=100)
    jaccard: float = Field(ge=0, le=100)
    hd95: float = Field(ge=0, le=MOST_VOXELS)
    asd: float = Field(ge=0, le=MOST_VOXELS)
    selection: Literal["test list", "validation list", "last", "unknown"]
    note: str = ""
