"""Figure of the densities of decoder features of labeled and of unlabeled scans (Figs. 1 and 5 of the paper)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graftseg.core.run_folder import RunFolder
from graftseg.reporting.figures import drawing
from graftseg.reporting.figures.features import RunFeatures, sample_features

Floats = npt.NDArray[np.floating[Any]]
VOXELS = 4000  # sampled voxels of a class from labeled scans, and from unlabeled scans
MIN_VOXELS = 10  # smallest number of voxels for which a density is drawn
SHOWN_PERCENTILES = (0.5, 99.5)  # densities are drawn between these percentiles of the values
MARGIN = 8.0  # margin of the integration grid beyond the smallest and largest value, in bandwidths
GRID_POINTS = 2048
MIN_BANDWIDTH = 1e-3  # lower limit of the bandwidth, for values that are almost equal
HEAD = ("run", "class", "labeled voxels", "unlabeled voxels", "overlap")


@dataclass(frozen=True)
class Panel:
    """One value for each sampled voxel of a class, from labeled and from unlabeled scans."""

    labeled: Floats
    unlabeled: Floats
    overlap: float | None  # overlap of the two densities, None if there are too few voxels


def draw_density(
    runs: Sequence[Path], out: Path, device: torch.device, seed: int, *, hidden_labels: bool
) -> drawing.FigureResult:
    """Draw a row for each run and a column for each class. Return the overlap of the two densities of each panel."""
    names = drawing.run_names(runs)
    sampled = [sample_features(RunFolder(path), device, VOXELS, seed, hidden_labels) for path in runs]
    panels = [[panel_of(features, label) for label in features.labeled] for features in sampled]
    _draw(out, names, sampled, panels, hidden_labels=hidden_labels)
    rows = []
    for name, features, line in zip(names, sampled, panels, strict=True):
        for label, panel in enumerate(line, start=1):
            counts = str(len(panel.labeled)), str(len(panel.unlabeled))
            shared = "" if panel.overlap is None else f"{panel.overlap:.3f}"
            rows.append((name, features.classes[label], *counts, shared))
    return drawing.FigureResult(out, _caption(sampled, hidden_labels), HEAD, tuple(rows))


def panel_of(features: RunFeatures, label: int) -> Panel:
    """Project features of a class to the first principal component of the labeled ones, in standard deviations."""
    labeled, unlabeled = (part[label].astype(np.float64) for part in (features.labeled, features.unlabeled))
    if min(len(labeled), len(unlabeled)) < MIN_VOXELS:
        return Panel(labeled[:, 0], unlabeled[:, 0], None)
    center, axis = labeled.mean(axis=0), principal_component(labeled)
    unit = float(((labeled - center) @ axis).std(ddof=1)) or 1.0
    first, second = ((values - center) @ axis / unit for values in (labeled, unlabeled))
    return Panel(first, second, overlap(first, second))


def principal_component(values: Floats) -> Floats:
    """Return the direction of the largest variance of ``(n, channels)``. Its largest entry is positive."""
    _, _, directions = np.linalg.svd(values - values.mean(axis=0), full_matrices=False)
    axis = directions[0]
    return np.asarray(axis * np.sign(axis[np.abs(axis).argmax()]))


def bandwidth(values: Floats) -> float:
    """Return the width of the kernel by Scott's rule, ``n ** (-1 / 5)`` standard deviations of n values, or more."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return max(spread / float(np.power(len(values), 0.2)), MIN_BANDWIDTH)


def density(values: Floats, at: Floats) -> Floats:
    """Return the estimated density of values ``(n,)`` at the points ``at``."""
    width = bandwidth(values)
    scaled = (np.asarray(at)[:, None] - np.asarray(values)[None, :]) / width
    return np.asarray(np.exp(-0.5 * scaled**2).mean(axis=1) / (width * np.sqrt(2 * np.pi)))


def overlap(first: Floats, second: Floats) -> float:
    """Return the overlap coefficient of two estimated densities, the integral of their minimum: 1 if they are equal."""
    grid = np.union1d(_grid(first), _grid(second))
    smaller = np.minimum(density(first, grid), density(second, grid))
    return float(min(((smaller[1:] + smaller[:-1]) / 2 * np.diff(grid)).sum(), 1.0))


def _grid(values: Floats) -> Floats:
    """Return points at which to integrate one density. They are closer together than its bandwidth."""
    margin = MARGIN * bandwidth(values)
    return np.linspace(values.min() - margin, values.max() + margin, GRID_POINTS)


def _draw(
    out: Path,
    names: Sequence[str],
    sampled: Sequence[RunFeatures],
    panels: Sequence[Sequence[Panel]],
    *,
    hidden_labels: bool,
) -> None:
    columns = max(map(len, panels))
    width, height = max(drawing.TEXT_WIDTH, 1.5 * columns), 1.35 * len(panels) + 0.75
    with drawing.canvas(out, width, height) as figure:
        grid = figure.subplots(len(panels), columns, squeeze=False)
        for row, (name, features, line) in enumerate(zip(names, sampled, panels, strict=True)):
            for label, (axes, panel) in enumerate(zip(grid[row], line, strict=False), start=1):
                _draw_panel(axes, panel)
                if row == 0 or features.classes != sampled[0].classes:
                    axes.set_title(drawing.shortened(features.classes[label]))
            for axes in grid[row][len(line) :]:
                axes.set_visible(False)
            drawing.row_label(grid[row][0], name)
        grouping = "true labels" if hidden_labels else "predicted labels"
        colors = {"labeled scans (true labels)": drawing.LABELED, f"unlabeled scans ({grouping})": drawing.UNLABELED}
        handles = [
            figure.axes[0].fill_between([], [], color=color, alpha=0.35, linewidth=1.2, label=text)
            for text, color in colors.items()
        ]
        figure.legend(handles=handles, loc="upper center", ncols=2)
        figure.supxlabel("first principal component of the labeled features (standard deviations)", fontsize=8, y=0.02)
        figure.subplots_adjust(
            left=0.05, right=0.99, top=1 - 0.45 / height, bottom=0.48 / height, wspace=0.08, hspace=0.28
        )


def _draw_panel(axes: Any, panel: Panel) -> None:
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    if panel.overlap is None:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "too few voxels", transform=axes.transAxes, ha="center", va="center")
        return
    both = np.concatenate([panel.labeled, panel.unlabeled])
    low, high = np.percentile(both, SHOWN_PERCENTILES)
    grid = np.linspace(low - 0.5, high + 0.5, 400)
    curves = []
    for values, color, style in ((panel.labeled, drawing.LABELED, "-"), (panel.unlabeled, drawing.UNLABELED, "--")):
        curve = density(values, grid)
        curves.append(curve)
        axes.fill_between(grid, curve, color=color, alpha=0.22, linewidth=0)
        axes.plot(grid, curve, color=color, linewidth=1.2, linestyle=style)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    third = len(grid) // 3
    has_space_left = max(curve[:third].max() for curve in curves) < max(curve[-third:].max() for curve in curves)
    x, side = (0.01, "left") if has_space_left else (0.99, "right")
    where = {"transform": axes.transAxes, "ha": side, "va": "top", "fontsize": 7.5}
    axes.text(x, 0.98, f"overlap\n{panel.overlap:.2f}", **where)


def _caption(sampled: Sequence[RunFeatures], hidden_labels: bool) -> str:
    grouping = "labels that training did not use" if hidden_labels else "the predictions of the run"
    counts = sorted({features.scans for features in sampled})
    scans = " or ".join(f"{labeled} labeled and {unlabeled} unlabeled" for labeled, unlabeled in counts)
    return (
        f"Densities of features of the last decoder layer, in {scans} training scans. Voxels of unlabeled scans are "
        f"grouped by {grouping}. Features are projected to the first principal component of the labeled features of "
        "the class. Overlap is the integral of the minimum of both densities: 1 means that both densities are equal."
    )
