"""The command ``figure``: draw one of the paper's figures for one or several runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, UserError
from graftseg.reporting.figures.density import draw_density
from graftseg.reporting.figures.dice_over_time import draw_dice_over_time
from graftseg.reporting.figures.drawing import FigureResult, check_target
from graftseg.reporting.figures.masks import draw_masks
from graftseg.reporting.figures.methods import MethodsView, draw_methods

FigureName = Literal["density", "dice-over-time", "methods", "masks"]
OPTIONS: dict[str, tuple[str, FigureName]] = {
    "cases": ("--case", "methods"),
    "view": ("--view", "methods"),
    "hidden_labels": ("--hidden-labels", "density"),
}
"""Arguments that only one figure uses: the option on the command line, and the figure."""


def figure(
    name: FigureName,
    *runs: str | Path,
    out: str | Path,
    cases: Sequence[str] = (),
    view: MethodsView | None = None,
    seed: int = 0,
    hidden_labels: bool = False,
    device: str = "auto",
) -> FigureResult:
    """Draw a figure of the paper for one or several runs, as SVG, PNG or PDF according to the suffix of ``out``.

    cases: test cases of ``methods``, by default the worst, the median and the best case
    view: what ``methods`` shows of volumes, by default slices and surfaces
    seed: seed of the masks of ``masks`` and of the sampled voxels of ``density``
    hidden_labels: ``density`` groups voxels of unlabeled scans by labels in the store that training did not use,
        instead of the predictions of the run
    """
    paths, target = [Path(run) for run in runs], Path(out)
    if not paths:
        raise UserError(Code.OPTION_INVALID, "runs", "no run given", "pass the folder of at least one run")
    given = {"cases": bool(cases), "view": view is not None, "hidden_labels": hidden_labels}
    for option, owner in (OPTIONS[key] for key, is_given in given.items() if is_given):
        if name != owner:
            raise UserError(Code.OPTION_CONFLICT, option, f"has no effect on the figure {name}", f"omit {option}")
    check_target(target)
    if name == "masks":
        return draw_masks(paths, target, seed)
    if name == "dice-over-time":
        return draw_dice_over_time(paths, target)
    if name == "methods":
        return draw_methods(paths, target, cases, view)
    if name == "density":
        return draw_density(paths, target, choose_device(device), seed, hidden_labels=hidden_labels)
    raise UserError(Code.UNKNOWN_NAME, name, "unknown figure", f"choose one of {', '.join(get_args(FigureName))}")
