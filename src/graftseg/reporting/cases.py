"""Pictures of the worst cases, the median one and the best: scan, reference, prediction."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graftseg.data.grid import to_source_axes
from graftseg.data.names import by_spelling, spelled
from graftseg.data.scans import KNOWN, is_scan, read_case, read_label, scan_stem
from graftseg.data.store import is_store, open_store
from graftseg.errors import UserError
from graftseg.files import read_object
from graftseg.references import stored_references
from graftseg.reporting.gaps import TEST, Remedy
from graftseg.reporting.markup import Html, missing, section, tag
from graftseg.reporting.orientation import NOWHERE, Marks, Orientation, seen_from
from graftseg.reporting.palette import legend
from graftseg.reporting.pictures import Album, Labels, Plane, label_layer
from graftseg.reporting.results import Results, case_dice, percent
from graftseg.types import Geometry

TITLE = "Worst, median and best cases"
ELSEWHERE = "its reference is not where it was when the case was evaluated"


@dataclass(frozen=True)
class View:
    """One slice of a case, how high one of its pixels is by its width, and how it lies in the patient.

    ``axis`` is that of the patient which it was cut across, None for a picture.
    """

    image: Plane
    reference: Labels
    prediction: Labels
    aspect: float
    axis: int | None
    marks: Marks | None


def cases_section(
    results: Results | None,
    classes: Sequence[str],
    album: Album,
    remedy: Remedy = TEST,
    lie: Orientation = NOWHERE,
) -> Html:
    """A row of three pictures for each chosen case, or what would give them."""
    if results is None:
        return section("cases", TITLE, missing("There is no evaluated case to show.", *remedy))
    entries = _manifest(results.folder)
    scores = case_dice(results.evaluation)
    chosen = chosen_cases(results.ranking)
    views = {case: _read(case, entries.get(case), results, lie) for case in chosen}
    figures = [
        _figure(case, f"{rank}, Dice {percent(scores[case])} %", views[case], album) for case, rank in chosen.items()
    ]
    text = "Scan, reference and prediction from left to right, on the slice with most reference voxels."
    said = _seen([view for view in views.values() if isinstance(view, View)])
    return section("cases", TITLE, tag("p", text), *said, legend(classes), tag("div", *figures, class_="gallery"))


def _seen(views: Sequence[View]) -> list[Html]:
    """How the slices are to be seen, if there are any."""
    axes = [view.axis for view in views]
    known = all(view.marks is not None for view in views)
    said = seen_from(axes, any(axis is not None for axis in axes), known)
    return [tag("p", said, class_="caption")] if views else []


def chosen_cases(ranking: Sequence[str]) -> dict[str, str]:
    """Of cases ranked worst first the worst three, the median and the best, each once, with its rank."""
    if len(ranking) == 1:
        return {ranking[0]: "the only case"}
    last = len(ranking) - 1
    places = {1: "second worst", 2: "third worst", last // 2: "median", 0: "worst", last: "best"}
    return {ranking[place]: rank for place, rank in sorted(places.items()) if place <= last}


def view_of(image: Plane, reference: Labels, prediction: Labels, geometry: Geometry, lie: Orientation) -> View:
    """The slice to show of arrays ``(*space)``.

    A volume is turned so that an axial slice shows the patient's right on the left and the front on top, and cut across
    its widest spacing; where the network's arrays have no known orientation, it is shown as they are.
    """
    cut = lie.cut(geometry)
    index = cut.fullest(reference, prediction)
    planes = [cut.plane(array, index) for array in (image, reference, prediction)]
    return View(planes[0], planes[1], planes[2], cut.aspect, cut.axis, lie.sides(cut, geometry))


def _figure(case: str, rank: str, view: View | str, album: Album) -> Html:
    caption = tag("figcaption", tag("b", case), f" {rank}")
    if isinstance(view, str):
        return tag("figure", caption, missing(f"No picture: {view}."))
    layers = {
        "scan": None,
        "reference": label_layer(view.reference),
        "prediction": label_layer(view.prediction),
    }
    pictures = [
        album.picture(view.image, layer, alt=f"{case}: {what}", aspect=view.aspect, marks=view.marks)
        for what, layer in layers.items()
    ]
    return tag("figure", caption, tag("div", *pictures, class_="row"))


def _read(case: str, entry: dict[str, Any] | None, results: Results, lie: Orientation) -> View | str:
    """The case's view, or why there is none, in words that tell no path."""
    if entry is None:
        return "the predictions' manifest does not name this case"
    if results.references is not None and is_store(results.references):
        return _read_stored(case, results.references, results.folder / entry["output"], lie)
    reference = _reference(case, results.references)
    if reference is None:
        return ELSEWHERE
    images = [results.folder / path for path in entry.get("images", [])]
    if not images:
        return "the predictions' manifest names no scan of this case"
    prediction = results.folder / entry["output"]
    if absent := [path.name for path in (*images, prediction) if not path.exists()]:
        return f"{absent[0]} is not where it was when the case was predicted"
    try:
        scan, expected, predicted = read_case(images, KNOWN), read_label(reference), read_label(prediction)
    except UserError as error:
        return f"{Path(error.where).name} cannot be read"
    if not scan.geometry.shape == expected.array.shape == predicted.array.shape:
        return "its scan, reference and prediction differ in shape"
    return view_of(scan.array[0], expected.array, predicted.array, scan.geometry, lie)


def _read_stored(case: str, path: Path, prediction: Path, lie: Orientation) -> View | str:
    """The view of a test case of a store, its axes turned back to those of its scan."""
    try:
        store, predicted = open_store(path), read_label(prediction)
        reference = by_spelling(stored_references(store)).get(spelled(case))
        if reference is None:
            return ELSEWHERE
        image, expected = np.asarray(store.image(reference.case)), reference.read()
    except UserError as error:
        return f"{Path(error.where).name} cannot be read"
    if predicted.array.shape != expected.array.shape:
        return "its scan, reference and prediction differ in shape"
    turned = to_source_axes(image[:1].astype(np.float32), reference.case.grid)[0]
    return view_of(turned, expected.array, predicted.array, expected.geometry, lie)


def _reference(case: str, folder: Path | None) -> Path | None:
    if folder is None or not folder.is_dir():
        return None
    found = (path for path in sorted(folder.iterdir()) if is_scan(path) and spelled(scan_stem(path)) == spelled(case))
    return next(found, None)


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """The manifest's entries by the stem of the label map, which also names the case in the scores."""
    path = folder / "manifest.json"
    cases = read_object(path).get("cases") if path.is_file() else None
    entries = [entry for entry in cases if isinstance(entry, dict)] if isinstance(cases, list) else []
    return {scan_stem(Path(entry["output"])): entry for entry in entries if isinstance(entry.get("output"), str)}
