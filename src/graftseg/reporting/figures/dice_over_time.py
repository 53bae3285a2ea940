"""Figure of the Dice of labeled and of unlabeled training scans over the steps of training (Fig. 2 of the paper)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import LOG_REMEDY, RunFolder, read_log
from graftseg.reporting.figures import drawing

HEAD = ("run", "step", "labeled Dice %", "unlabeled Dice %", "gap")
MAX_COLUMNS = 3


@dataclass(frozen=True)
class Scores:
    """Mean Dice of the labeled and of the unlabeled training scans, from 0 to 1, after each of the ``steps``."""

    steps: tuple[int, ...]
    labeled: tuple[float, ...]
    unlabeled: tuple[float, ...]


def draw_dice_over_time(runs: Sequence[Path], out: Path) -> drawing.FigureResult:
    """Draw a panel for each run. Return the scores after every scored step, run by run."""
    names, scores = drawing.run_names(runs), [read_scores(RunFolder(path)) for path in runs]
    columns = min(MAX_COLUMNS, len(runs))
    rows = -(-len(runs) // columns)
    width, height = drawing.TEXT_WIDTH * (0.3 + 0.7 * columns / MAX_COLUMNS), 1.8 * rows + 0.5
    with drawing.canvas(out, width, height) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for number, axes in enumerate(grid.flat):
            if number < len(runs):
                _draw_panel(axes, names[number], scores[number])
            else:
                axes.set_visible(False)
        for row in grid:
            row[0].set_ylabel("Dice %")
        handles = [
            figure.axes[0].plot([], [], color=color, linestyle=style, label=f"{name} training scans")[0]
            for name, color, style in (("labeled", drawing.LABELED, "-"), ("unlabeled", drawing.UNLABELED, "--"))
        ]
        figure.legend(handles=handles, loc="upper center", ncols=2)
        figure.subplots_adjust(
            left=0.48 / width, right=1 - 0.2 / width, top=1 - 0.5 / height, bottom=0.4 / height, wspace=0.12, hspace=0.5
        )
    table = [
        (name, str(step), f"{100 * labeled:.1f}", f"{100 * unlabeled:.1f}", _points(labeled - unlabeled))
        for name, run in zip(names, scores, strict=True)
        for step, labeled, unlabeled in zip(run.steps, run.labeled, run.unlabeled, strict=True)
    ]
    caption = (
        "Mean Dice of the labeled and of the unlabeled training scans during training. Training did not use the labels "
        "of the unlabeled scans. The gap is labeled minus unlabeled Dice. The title of a panel shows the gap after the "
        "last step."
    )
    return drawing.FigureResult(out, caption, HEAD, tuple(table))


def read_scores(run: RunFolder) -> Scores:
    """Read the scores of the training scans from the log of a run."""
    run.manifest()
    lines = [line for line in read_log(run.log_file) if "training_dice" in line]
    if not lines:
        finding = "its log has no scores of the training scans"
        remedy = "train with --set loop.training_dice_every=100, on a store that has labels of the unlabeled scans"
        raise UserError(Code.RUN_MISMATCH, run.path, finding, remedy)
    try:
        labeled, unlabeled = (
            tuple(float(line["training_dice"][name]) for line in lines) for name in ("labeled", "unlabeled")
        )
    except (KeyError, TypeError, ValueError):
        raise UserError(Code.DAMAGED_FILE, run.log_file, "damaged or edited scores", LOG_REMEDY) from None
    return Scores(tuple(line["global_step"] for line in lines), labeled, unlabeled)


def _draw_panel(axes: Any, name: str, scores: Scores) -> None:
    labeled, unlabeled = ([100 * value for value in values] for values in (scores.labeled, scores.unlabeled))
    axes.fill_between(scores.steps, labeled, unlabeled, color=drawing.FAINT, alpha=0.5, linewidth=0)
    marker = "o" if len(scores.steps) == 1 else ""  # a line through a single point is invisible
    for values, color, style in ((labeled, drawing.LABELED, "-"), (unlabeled, drawing.UNLABELED, "--")):
        axes.plot(scores.steps, values, color=color, linewidth=1.2, linestyle=style, marker=marker, markersize=3)
    axes.set_ylim(0, 100)
    axes.set_xlim(0, max(scores.steps))
    axes.set_xlabel("step")
    axes.set_title(f"{drawing.shortened(name)}: gap {_points(scores.labeled[-1] - scores.unlabeled[-1])}")


def _points(difference: float) -> str:
    return f"{100 * difference:.1f}".replace("-", "−")
