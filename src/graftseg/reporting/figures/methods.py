"""Figure that compares runs on the same test cases, as slices and as surfaces (Fig. 4 of the paper)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from graftseg.core.colors import color_of
from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.core.run_folder import RunFolder
from graftseg.data.grid import plan_grid, to_grid
from graftseg.data.slices import Cut, gray_window, to_gray
from graftseg.reporting.cases import CaseArrays, read_arrays, reported_cases
from graftseg.reporting.figures import drawing
from graftseg.reporting.figures.surfaces import Camera, Floats, View, antialiased, render
from graftseg.reporting.pictures import label_layer, rgb_table
from graftseg.reporting.results import Results, case_dice, read_results
from graftseg.reporting.run_files import class_names

MethodsView = Literal["slices", "surfaces", "both"]
HEAD = ("case", "rank", "run", "Dice %")
CAMERA = Camera()
SURFACE_SIDE = 320
MARGIN = 0.2  # margin around the labels of a slice, as a fraction of their size


@dataclass(frozen=True)
class RunScores:
    """The scores of a run on its test cases."""

    name: str
    path: Path
    results: Results
    dice: dict[str, float]


@dataclass(frozen=True)
class Row:
    """A case with its rank, its arrays, and the label map and the Dice of every run."""

    case: str
    rank: str
    arrays: CaseArrays
    predictions: tuple[Any, ...]
    dice: tuple[float, ...]

    @property
    def label_maps(self) -> tuple[Any, ...]:
        """Return the reference and the label maps of all runs."""
        return (self.arrays.reference, *self.predictions)


def draw_methods(
    runs: Sequence[Path], out: Path, cases: Sequence[str] = (), view: MethodsView | None = None
) -> drawing.FigureResult:
    """Draw a row for each case, by default the worst, the median and the best case by the mean Dice of all runs."""
    tested = [_tested(name, path) for name, path in zip(drawing.run_names(runs), runs, strict=True)]
    chosen = _requested_cases(tested, cases) if cases else chosen_cases(tested)
    classes = class_names(RunFolder(runs[0]).manifest())
    rows = [_row(case, rank, tested, classes) for case, rank in chosen.items()]
    has_volumes = all(row.arrays.reference.ndim == 3 for row in rows)
    if view in ("surfaces", "both") and not has_volumes:
        raise UserError(Code.OPTION_INVALID, f"--view {view}", "the scans are 2-D", "use --view slices")
    kinds = (view,) if view in ("slices", "surfaces") else ("slices", "surfaces") if has_volumes else ("slices",)
    _draw(out, rows, tested, classes, kinds)
    table = [
        (row.case, row.rank, run.name, f"{100 * dice:.1f}")
        for row in rows
        for run, dice in zip(tested, row.dice, strict=True)
    ]
    return drawing.FigureResult(out, _caption(rows, bool(cases), kinds), HEAD, tuple(table))


def chosen_cases(tested: Sequence[RunScores]) -> dict[str, str]:
    """Return the worst, the median and the best case with their ranks, by the mean Dice of all runs."""
    scores = {case: float(np.mean([run.dice[case] for run in tested])) for case in _common_cases(tested)}
    ranking = sorted(scores, key=lambda case: (scores[case], case))
    last = len(ranking) - 1
    places = {0: "worst", last // 2: "median", last: "best"} if last > 1 else {0: "worst", last: "best"}
    return {ranking[place]: rank for place, rank in places.items()}


def _tested(name: str, path: Path) -> RunScores:
    run = RunFolder(path)
    run.manifest()
    results = read_results(run.predictions)
    if results is None:
        raise UserError(Code.NOT_TESTED, path, "the run has not been tested", f"run graftseg test {path}")
    return RunScores(name, path, results, {nfc(case): dice for case, dice in case_dice(results.evaluation).items()})


def _common_cases(tested: Sequence[RunScores]) -> list[str]:
    common = sorted(set.intersection(*(set(run.dice) for run in tested)))
    if not common:
        finding = "the runs have no test case in common"
        raise UserError(Code.NOT_COMPARABLE, tested[-1].path, finding, "choose runs that were tested on the same scans")
    return common


def _requested_cases(tested: Sequence[RunScores], cases: Sequence[str]) -> dict[str, str]:
    common = _common_cases(tested)
    if unknown := [case for case in cases if nfc(case) not in common]:
        remedy = f"choose one such as {', '.join(common[:3])}"
        raise UserError(Code.UNKNOWN_NAME, f"--case {unknown[0]}", "not a test case of all runs", remedy)
    return {nfc(case): "" for case in cases}


def _row(case: str, rank: str, tested: Sequence[RunScores], classes: Sequence[str]) -> Row:
    arrays = []
    for run in tested:
        entries = {nfc(name): entry for name, entry in reported_cases(run.results).items()}
        case_arrays = read_arrays(case, entries.get(case), classes)
        if isinstance(case_arrays, str):
            raise UserError(Code.PREDICTIONS_MISMATCH, run.path, f"case {case}: {case_arrays}", "test the run again")
        arrays.append(case_arrays)
        if case_arrays.reference.shape != arrays[0].reference.shape:
            finding = f"case {case} has another shape than in {tested[0].path}"
            raise UserError(Code.NOT_COMPARABLE, run.path, finding, "choose runs that were tested on the same scans")
    predictions = tuple(case_arrays.prediction for case_arrays in arrays)
    return Row(case, rank, arrays[0], predictions, tuple(run.dice[case] for run in tested))


def _draw(
    out: Path, rows: Sequence[Row], tested: Sequence[RunScores], classes: Sequence[str], kinds: Sequence[str]
) -> None:
    columns, grid_rows = 2 + len(tested), [(row, kind) for row in rows for kind in kinds]
    side = min(drawing.TEXT_WIDTH, 1.6 * columns) / columns
    width, height = side * columns, (side + 0.16) * len(grid_rows) + 0.55
    with drawing.canvas(out, width, height) as figure:
        grid = figure.subplots(len(grid_rows), columns, squeeze=False)
        for panels, (row, kind) in zip(grid, grid_rows, strict=True):
            for axes in panels:
                drawing.hide_frame(axes)
            (_draw_slices if kind == "slices" else _draw_surfaces)(panels, row, len(classes))
            if kind == kinds[0]:
                drawing.row_label(panels[0], *filter(None, (drawing.shortened(row.case, 18), row.rank)))
            if kind == kinds[-1]:
                for axes, dice in zip(panels[2:], row.dice, strict=True):
                    axes.set_xlabel(f"Dice {100 * dice:.1f} %", labelpad=2)
        for axes, title in zip(grid[0], ["scan", "reference", *(run.name for run in tested)], strict=True):
            axes.set_title(drawing.shortened(title, 18))
        handles = [drawing.color_patch(color_of(label), name) for label, name in enumerate(classes[1:], start=1)]
        figure.legend(handles=handles, loc="lower center", ncols=min(6, len(handles)), handlelength=1, handleheight=1)
        figure.subplots_adjust(
            left=0.4 / width, right=0.99, top=1 - 0.2 / height, bottom=0.42 / height, wspace=0.04, hspace=0.14
        )


def _draw_slices(panels: Sequence[Any], row: Row, classes: int) -> None:
    """Draw the slice with the most reference voxels, cropped to the labels of all label maps."""
    geometry = row.arrays.geometry
    cut = Cut.across_largest_spacing(geometry) if geometry.is_placed else Cut.as_stored(geometry)
    index = cut.fullest(*row.label_maps)
    image = cut.plane(row.arrays.image, index)
    maps = [cut.plane(labels, index) for labels in row.label_maps]
    low, high = _crop(maps, image.shape)
    gray = to_gray(image, gray_window(row.arrays.image))
    for axes, labels in zip(panels, [None, *maps], strict=True):
        place = {"extent": (0, gray.shape[1], gray.shape[0], 0), "aspect": cut.aspect}
        axes.imshow(gray, cmap="gray", vmin=0, vmax=255, interpolation="bilinear", **place)
        if labels is not None:
            axes.imshow(label_layer(np.asarray(labels)), interpolation="antialiased", **place)
        axes.set_xlim(low[1], high[1])
        axes.set_ylim(high[0], low[0])


def _draw_surfaces(panels: Sequence[Any], row: Row, classes: int) -> None:
    """Draw the surfaces of all label maps from the same direction and at the same scale."""
    panels[0].text(0.5, 0.5, "surfaces", transform=panels[0].transAxes, ha="center", va="center", color="#777777")
    geometry = row.arrays.geometry
    # the axes point right, anterior, superior, or are as stored if the orientation is unknown
    grid = plan_grid(geometry, orientation="RAS" if geometry.is_placed else None, spacing=None)
    volumes, spacing = [to_grid(labels, grid, labels=True) for labels in row.label_maps], grid.prepared_spacing
    view = View.around([volume > 0 for volume in volumes], spacing, SURFACE_SIDE, CAMERA)
    colors = {label: rgb / 255 for label, rgb in enumerate(rgb_table(classes).astype(float)) if label}
    for axes, volume in zip(panels[1:], volumes, strict=True):
        axes.imshow(antialiased(render(volume, spacing, view, colors)), interpolation="antialiased")


def _crop(maps: Sequence[Any], shape: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the first and the last row and column of a square around the labels of all maps, or of the slice."""
    labeled = np.argwhere(np.logical_or.reduce([labels > 0 for labels in maps]))
    if not len(labeled):
        return np.zeros(2), np.asarray(shape, dtype=np.float64)
    low, high = labeled.min(axis=0), labeled.max(axis=0) + 1
    half = (0.5 + MARGIN) * float((high - low).max())
    center = (low + high) / 2
    return np.maximum(center - half, 0.0), np.minimum(center + half, np.asarray(shape, dtype=np.float64))


def _caption(rows: Sequence[Row], is_requested: bool, kinds: Sequence[str]) -> str:
    choice = "" if is_requested else " The worst, the median and the best case by the mean Dice of all runs are shown."
    parts = ["Scan, reference and label maps of the runs on the same test cases." + choice]
    if "slices" in kinds and rows[0].arrays.reference.ndim == 3:
        parts.append("Each slice is the one with the most reference voxels.")
    if "surfaces" in kinds:
        parts.append(
            "Surfaces of a case have the same camera and scale, and are smoothed, which removes single voxels."
        )
    return " ".join(parts)
