"""Pictures of the worst cases, the median case and the best case, with scan, reference and prediction."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from graftseg.core.errors import UserError
from graftseg.core.names import nfc
from graftseg.core.types import Geometry
from graftseg.data.gray_window import Window, gray_window
from graftseg.data.grid import to_source_axes
from graftseg.data.scans import VOLUMES_ARE_CHANNELS, is_scan, read_case, read_label, scan_stem
from graftseg.data.slices import Cut
from graftseg.data.store import is_store, open_store
from graftseg.evaluation.references import stored_reference
from graftseg.reporting.folder import read_entries
from graftseg.reporting.gallery import Gallery
from graftseg.reporting.missing import Missing
from graftseg.reporting.orientation import Marks, Orientation, view_sentence
from graftseg.reporting.pictures import MAX_SIDE, Labels, Plane, label_layer
from graftseg.reporting.rendering import render
from graftseg.reporting.results import Results, case_dice
from graftseg.reporting.text import joined

MAX_SLICES = 9
"""Number of slices of a case that the slider shows."""
MAX_SLICE_SIDE = 256
"""Longer side of slices that only the slider shows, in pixels. These slices are a large part of the page."""
REFERENCE_MISSING = "the reference has been moved or deleted"
DIFFERENT_SHAPES = "scan, reference and prediction have different shapes"


@dataclass(frozen=True)
class CaseArrays:
    """The first channel of a scan ``(*space)``, its reference and its prediction, on the grid of the scan."""

    image: Plane
    reference: Labels
    prediction: Labels
    geometry: Geometry


@dataclass(frozen=True)
class View:
    """A slice of a case. ``aspect`` is the height of a pixel divided by its width.

    ``axis`` is the patient's axis perpendicular to the slice, or None for a 2-D scan. ``shows`` and ``hides`` are set
    for a second slice: classes that only this slice shows, and classes that neither slice shows. ``window`` is the gray
    window of the whole scan. ``number`` counts from 1 to ``slices``. ``neighbors`` are the slices of the slider in
    order, including a copy of this slice.
    """

    image: Plane
    reference: Labels
    prediction: Labels
    aspect: float
    axis: int | None
    marks: Marks | None
    window: Window
    shows: tuple[int, ...] = ()
    hides: tuple[int, ...] = ()
    number: int = 1
    slices: int = 1
    neighbors: tuple["View", ...] = ()


@dataclass(frozen=True)
class Predicted:
    """A predicted label map and its manifest entry. ``origin`` says which fold held out the case."""

    folder: Path
    entry: dict[str, Any]
    references: Path | None
    origin: str = ""


def predicted_in(results: Results, only: Collection[str] | None = None, origin: str = "") -> dict[str, Predicted]:
    """Return the label maps of a folder by case. With ``only``, other cases are left out."""
    names = None if only is None else {nfc(case) for case in only}
    entries = {scan_stem(Path(entry["output"])): entry for entry in read_entries(results.folder)}
    return {
        case: Predicted(results.folder, entry, results.references, origin)
        for case, entry in entries.items()
        if names is None or nfc(case) in names
    }


def cases_section(
    results: Results | None,
    gallery: Gallery,
    predicted: Mapping[str, Predicted] | None = None,
    baseline: Mapping[str, float] | None = None,
) -> Markup:
    """Render a row of three pictures for each chosen case, and a second row for classes missing in the first row.

    ``predicted`` are the label maps by case, by default all label maps in the folder of the scores. ``baseline`` is
    the Dice of the baseline by case.
    """
    if results is None:
        return render("cases", empty=Missing("There is no evaluated case to show.", see_results=True))
    entries = predicted_in(results) if predicted is None else predicted
    scores, figures = case_dice(results.evaluation), []
    seen: list[View] = []
    for case, rank in chosen_cases(results.ranking).items():
        views = _read(case, entries.get(case), gallery.orientation, gallery.classes)
        figure = {
            "case": case,
            "rank": rank,
            "dice": scores[case],
            "baseline": (baseline or {}).get(case),
            "rows": [],
            "empty": None,
        }
        if isinstance(views, str):
            figure["empty"] = Missing(f"No picture: {views}.")
        else:
            figure["rows"] = [_row(case, view, gallery) for view in views]
            seen += views
        figures.append(figure | {"origin": entries[case].origin if case in entries else ""})
    axes = [view.axis for view in seen]
    has_slices, is_known = any(axis is not None for axis in axes), all(view.marks is not None for view in seen)
    return render(
        "cases",
        has_slices=not seen or has_slices,
        has_second_rows=any(view.shows for view in seen),
        orientation=gallery.orientation.with_channel(view_sentence(axes, has_slices, is_known)) if seen else "",
        classes=[*enumerate(gallery.classes)],
        figures=figures,
    )


def chosen_cases(ranking: Sequence[str]) -> dict[str, str]:
    """Return the worst three, the median and the best case with their ranks. ``ranking`` begins with the worst case."""
    if len(ranking) == 1:
        return {ranking[0]: "the only case"}
    last = len(ranking) - 1
    ranks = {1: "second worst", 2: "third worst", last // 2: "median", 0: "worst", last: "best"}
    return {ranking[index]: rank for index, rank in sorted(ranks.items()) if index <= last}


def views_of(
    image: Plane, reference: Labels, prediction: Labels, geometry: Geometry, orientation: Orientation
) -> tuple[View, ...]:
    """Return the slice with the most reference voxels. If classes are missing in it, add a second slice with them.

    Arrays are ``(*space)``. Slices are perpendicular to the axis with the largest spacing. An axial slice shows the
    patient's right on the left and the front on top. Without a known orientation, slices are shown as stored.
    """
    cut, arrays = orientation.cut(geometry), (image, reference, prediction)
    style = orientation.sides(cut, geometry), gray_window(image)
    first = _view(cut, cut.fullest(reference, prediction), arrays, *style)
    indices = cut.through(first.number - 1, MAX_SLICES, reference, prediction)
    if len(indices) > 1:
        first = replace(first, neighbors=tuple(_view(cut, index, arrays, *style) for index in indices))
    expected = _classes(reference)
    only_found = _classes(prediction) - expected
    lacking = expected - _classes(first.reference) | only_found - _classes(first.prediction)
    if not lacking:
        return (first,)
    wanted = np.isin(reference, sorted(lacking)), np.isin(prediction, sorted(lacking & only_found))
    second = _view(cut, cut.fullest(*wanted), arrays, *style)
    shown = lacking & (_classes(second.reference) | only_found & _classes(second.prediction))
    return first, replace(second, shows=tuple(sorted(shown)), hides=tuple(sorted(lacking - shown)))


def _view(cut: Cut, index: int, arrays: tuple[Plane, Labels, Labels], marks: Marks | None, window: Window) -> View:
    image, reference, prediction = (cut.plane(array, index) for array in arrays)
    return View(
        image, reference, prediction, cut.aspect, cut.axis, marks, window, number=index + 1, slices=cut.count(arrays[0])
    )


def _classes(labels: Labels) -> set[int]:
    """Return the classes in a label map, without the background."""
    return {int(value) for value in np.unique(labels) if value > 0}


def _row(case: str, view: View, gallery: Gallery) -> dict[str, Any]:
    """Draw scan, reference and prediction of a slice, and of its neighbors for the slider."""
    names = dict(enumerate(gallery.classes))
    shown, hidden = ([names.get(label, f"class {label}") for label in labels] for labels in (view.shows, view.hides))
    frames = [
        (neighbor.number, _pictures(f"{case}, slice {neighbor.number}", neighbor, gallery, MAX_SLICE_SIDE), False)
        if neighbor.number != view.number
        else (neighbor.number, _pictures(case, view, gallery), True)
        for neighbor in view.neighbors or (view,)
    ]
    return {"frames": frames, "number": view.number, "slices": view.slices, "shown": shown, "hidden": hidden}


def _pictures(title: str, view: View, gallery: Gallery, limit: int = MAX_SIDE) -> list[Markup]:
    """Draw scan, reference and prediction of a slice."""
    names = dict(enumerate(gallery.classes))
    classes = [names.get(label, f"class {label}") for label in view.shows]
    suffix = f" ({joined(classes)})" if classes else ""
    maps = {"scan": None, "reference": view.reference, "prediction": view.prediction}
    style: dict[str, Any] = {"aspect": view.aspect, "marks": view.marks, "window": view.window, "limit": limit}
    return [
        gallery.album.picture(
            view.image, None if labels is None else label_layer(labels, limit), alt=f"{title}: {name}{suffix}", **style
        )
        for name, labels in maps.items()
    ]


def _read(
    case: str, predicted: Predicted | None, orientation: Orientation, classes: Sequence[str] = ()
) -> tuple[View, ...] | str:
    """Return the views of a case, or the reason why the case cannot be shown."""
    arrays = read_arrays(case, predicted, classes)
    if isinstance(arrays, str):
        return arrays
    return views_of(arrays.image, arrays.reference, arrays.prediction, arrays.geometry, orientation)


def read_arrays(case: str, predicted: Predicted | None, classes: Sequence[str] = ()) -> CaseArrays | str:
    """Return the arrays of a case, or the reason why it cannot be read. The reason contains no full paths."""
    if predicted is None:
        return "the manifest of the predictions does not list this case"
    prediction = predicted.folder / predicted.entry["output"]
    if predicted.references is not None and is_store(predicted.references):
        return _read_stored(case, predicted.references, prediction)
    reference = _reference(case, predicted.references)
    if reference is None:
        return REFERENCE_MISSING
    images = [predicted.folder / path for path in predicted.entry.get("images", [])]
    if not images:
        return "the manifest of the predictions lists no scan of this case"
    if absent := [path.name for path in (*images, prediction) if not path.exists()]:
        return f"{absent[0]} has been moved or deleted"
    try:
        scan, predicted_labels = read_case(images, VOLUMES_ARE_CHANNELS), read_label(prediction)
        expected = read_label(reference, images[0], dict(enumerate(classes)))
    except UserError as error:
        return f"{Path(error.where).name} cannot be read"
    if not scan.geometry.shape == expected.array.shape == predicted_labels.array.shape:
        return DIFFERENT_SHAPES
    return CaseArrays(scan.array[0], expected.array, predicted_labels.array, scan.geometry)


def _read_stored(case: str, path: Path, prediction: Path) -> CaseArrays | str:
    """Return the arrays of a case of a store, in the orientation of the original scan."""
    try:
        store, predicted_labels = open_store(path), read_label(prediction)
        matching = [stored for stored in store.cases if stored.label is not None and nfc(stored.name) == nfc(case)]
        if not matching or matching[0].grid.is_resampled:
            return REFERENCE_MISSING
        image, expected = np.asarray(store.image(matching[0])), stored_reference(store, matching[0]).read()
    except UserError as error:
        return f"{Path(error.where).name} cannot be read"
    if predicted_labels.array.shape != expected.array.shape:
        return DIFFERENT_SHAPES
    first_channel = to_source_axes(image[:1].astype(np.float32), matching[0].grid)[0]
    return CaseArrays(first_channel, expected.array, predicted_labels.array, expected.geometry)


def _reference(case: str, folder: Path | None) -> Path | None:
    if folder is None or not folder.is_dir():
        return None
    matching = (path for path in sorted(folder.iterdir()) if is_scan(path) and nfc(scan_stem(path)) == nfc(case))
    return next(matching, None)
