"""The verb ``figure``: draw one of the paper's figures for one or several runs."""

from pathlib import Path
from typing import Literal, get_args

from graftseg.core.errors import Code, UserError
from graftseg.reporting.figures.drawing import check_target
from graftseg.reporting.figures.masks import draw_masks
from graftseg.reporting.figures.result import FigureResult

FigureName = Literal["density", "dice-over-time", "methods", "masks"]
NAMES: tuple[FigureName, ...] = get_args(FigureName)


def figure(name: FigureName, *runs: str | Path, out: str | Path, seed: int = 0) -> FigureResult:
    """Draw a figure of the paper for one or several runs, as SVG, PNG or PDF according to the suffix of ``out``."""
    paths, target = [Path(run) for run in runs], Path(out)
    check_target(target)
    if name == "masks":
        return draw_masks(paths, target, seed)
    raise UserError(Code.UNKNOWN_NAME, name, "unknown figure", f"choose one of {', '.join(NAMES)}")
