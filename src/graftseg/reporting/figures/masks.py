"""Figure of the copy-paste masks: the mask of a run next to the other kinds of masks (Fig. 6 of the paper)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graftseg.core.colors import color_of
from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.methods import METHODS
from graftseg.ops.masks import Box, ContactSlab, MaskSettings, RandomCubes
from graftseg.recipes.recipe import Recipe, load_recipe
from graftseg.reporting.figures import drawing
from graftseg.reporting.figures.surfaces import Camera, Floats, View, antialiased, render

Mask = npt.NDArray[np.bool_]
KINDS: tuple[MaskSettings, ...] = (RandomCubes(), Box(), ContactSlab())
HEAD = ("run", "mask", "used", "patch", "β", "pasted %")
CAMERA = Camera(azimuth=35.0, elevation=25.0)
SIDE = 150  # pixels of a drawn volume
PASTED_COLOR = tuple(channel / 255 for channel in bytes.fromhex(color_of(2)[1:]))
EDGE_WIDTHS = 0.9, 0.35  # line widths of edges in front of and behind the pasted region


def draw_masks(runs: Sequence[Path], out: Path, seed: int) -> drawing.FigureResult:
    """Draw one random mask of every kind for each run. The pasted region is colored."""
    names, rows = drawing.run_names(runs), []
    masks_of_runs = [_masks_of(path, seed) for path in runs]
    width, height = drawing.TEXT_WIDTH * 0.75, 1.8 * len(runs) + 0.1
    with drawing.canvas(out, width, height) as figure:
        grid = figure.subplots(len(runs), len(KINDS), squeeze=False)
        for name, (used, beta, masks), panels in zip(names, masks_of_runs, grid, strict=True):
            drawing.row_label(panels[0], name)
            for axes, (kind, mask) in zip(panels, masks.items(), strict=True):
                percent, is_used = 100 * float(1 - mask.mean()), kind == used
                title = f"{kind}, {percent:.0f} %"
                axes.set_title(f"{title} (used)" if is_used else title, fontweight="bold" if is_used else "normal")
                _draw(axes, ~mask)
                patch = " x ".join(map(str, mask.shape))
                rows.append((name, kind, "yes" if is_used else "no", patch, f"{beta:.3g}", f"{percent:.1f}"))
        figure.subplots_adjust(left=0.07, right=0.98, top=1 - 0.25 / height, bottom=0.01, wspace=0.08, hspace=0.18)
    caption = (
        "Copy-paste masks. Where the patch is colored, voxels of a second image replace those of the first image. The "
        "number is the colored part of the patch in percent. The run uses the marked mask. The other masks have their "
        "default sizes for the same patch and β."
    )
    return drawing.FigureResult(out, caption, HEAD, tuple(rows))


def _masks_of(path: Path, seed: int) -> tuple[str, float, dict[str, Mask]]:
    """Return the name of the mask that a run uses, its β, and a random mask of every kind by name."""
    run = RunFolder(path)
    run.manifest()
    recipe = load_recipe(run.recipe_file)
    used, beta = _used_mask(path, recipe)
    masks: dict[str, Mask] = {}
    for settings in (used if used.name == kind.name else kind for kind in KINDS):
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            masks[settings.name] = settings.draw(recipe.batches.patch, beta, "cpu").numpy()
    return used.name, beta, masks


def _used_mask(path: Path, recipe: Recipe) -> tuple[MaskSettings, float]:
    """Return the mask and β of the last stage that uses a copy-paste mask. Raise a UserError if no stage does.

    bcp and graft with ``direction: none``, and bcp-pretrain with ``mixing: false``, paste nothing. fg-cutmix exchanges
    patches without a mask. graft always pastes a box.
    """
    for stage in reversed(recipe.stages):
        config = METHODS[stage.method].Config.model_validate(stage.settings)
        is_pasting = getattr(config, "direction", "both") != "none" and getattr(config, "mixing", True)
        if hasattr(config, "beta") and is_pasting:
            return getattr(config, "mask", Box()), config.beta
    finding = f"no stage of recipe {recipe.name} uses a copy-paste mask"
    raise UserError(Code.RECIPE_MISMATCH, path, finding, "choose a run that pastes crops, such as a run of la-8/bcp")


def _draw(axes: Any, pasted: Mask) -> None:
    drawing.hide_frame(axes)
    if pasted.ndim == 3:
        _draw_volume(axes, pasted)
    else:
        axes.imshow(np.where(pasted.T[..., None], PASTED_COLOR, (0.93, 0.93, 0.93)), interpolation="nearest")


def _draw_volume(axes: Any, pasted: Mask) -> None:
    spacing = (1.0, 1.0, 1.0)
    view = View.around([np.ones(pasted.shape, bool)], spacing, 2 * SIDE, CAMERA)
    # one voxel of background on each side, so that the region has a surface at the edge of the patch
    padded = np.pad(pasted, 1)
    view_of_padded = replace(view, center=tuple(coordinate + 1 for coordinate in view.center))
    colors = {1: np.array(PASTED_COLOR)}
    picture = antialiased(render(padded.astype(np.uint8), spacing, view_of_padded, colors, smoothing=0.0))
    extent = (-view.radius, view.radius, -view.radius, view.radius)
    axes.imshow(picture, extent=extent, interpolation="antialiased", zorder=2)
    for start, end, is_front in _edges(pasted.shape, CAMERA):
        line = {"color": "#777777" if is_front else drawing.FAINT, "linewidth": EDGE_WIDTHS[0 if is_front else 1]}
        axes.plot([start[0], end[0]], [start[1], end[1]], zorder=3 if is_front else 1, solid_capstyle="round", **line)
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
    axes.set_aspect("equal")


def _edges(shape: Sequence[int], camera: Camera) -> list[tuple[Floats, Floats, bool]]:
    """Return the edges of a box around its center: both ends in the picture, and whether the edge is in front."""
    toward, up, right = camera.axes
    half = np.asarray(shape) / 2
    corners = np.array([*product((-1, 1), repeat=3)])
    farthest = corners[np.argmin(corners * half @ toward)]
    edges = []
    for first, second in combinations(corners, 2):
        if (first != second).sum() == 1:
            start, end = (np.array([point * half @ right, point * half @ up]) for point in (first, second))
            edges.append((start, end, not ((first == farthest).all() or (second == farthest).all())))
    return edges
