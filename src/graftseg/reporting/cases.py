"""Pictures of the worst cases, the median case and the best case: scan, reference and prediction."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from graftseg.core.errors import UserError
from graftseg.core.names import nfc
from graftseg.core.predictions import PredictedCase, extra_files, read_manifest
from graftseg.core.types import Geometry
from graftseg.data.grouping import labels_in, match_labels
from graftseg.data.scans import VOLUMES_ARE_CHANNELS, read_case, read_label, scan_stem
from graftseg.data.slices import Window, gray_window
from graftseg.data.store import is_store, open_store
from graftseg.evaluation.references import stored_image, stored_reference
from graftseg.reporting.gallery import Gallery
from graftseg.reporting.missing import Missing
from graftseg.reporting.orientation import Marks, Orientation, view_sentence
from graftseg.reporting.pictures import MAX_SIDE, Labels, Plane, label_layer
from graftseg.reporting.rendering import render
from graftseg.reporting.results import Results, case_dice
from graftseg.reporting.text import joined

MAX_SLICES = 9  # number of slices of a case that the slider shows
MAX_SLICE_SIDE = 256
"""Longer side in pixels of slices that only the slider shows. It is small because these slices are most of the page."""
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
class CaseSlice:
    """A slice of a scan with its reference and its prediction, each ``(H, W)``."""

    image: Plane
    reference: Labels
    prediction: Labels
    aspect: float  # height of a pixel divided by its width
    axis: int | None  # the patient's axis perpendicular to the slice, None for a 2-D scan
    marks: Marks | None  # the patient's sides at the left and the right edge, None if unknown
    window: Window  # the gray window of the whole scan
    number: int  # position of the slice in the scan, counted from 1
    count: int  # number of slices of the scan
    neighbors: tuple["CaseSlice", ...] = ()  # slices of the slider in order, including a copy of this slice
    added_classes: tuple[int, ...] = ()  # classes that only this slice shows, for the second slice of a case
    absent_classes: tuple[int, ...] = ()  # classes that neither slice of the case shows, for the second slice of a case


@dataclass(frozen=True)
class ReportedCase:
    """The files of a predicted case."""

    folder: Path  # the folder of the predictions
    predicted: PredictedCase  # the case in the manifest of the folder
    reference_source: Path | None  # the folder or store of the reference label maps
    reference_file: Path | None  # the reference label map in this folder, None for a store
    origin: str = ""  # a phrase about the fold that held out the case, empty without folds


def reported_cases(results: Results, only: Collection[str] | None = None, origin: str = "") -> dict[str, ReportedCase]:
    """Return the predicted cases of a folder by name. ``only`` limits them to these names."""
    names = None if only is None else {nfc(case) for case in only}
    manifest = read_manifest(results.folder, "predict again")
    cases = {scan_stem(Path(case.output)): case for case in (manifest.cases if manifest else ())}
    shown = [name for name in cases if names is None or nfc(name) in names]
    folder, references = results.folder, results.references
    label_of = _reference_files(references, cases)
    return {name: ReportedCase(folder, cases[name], references, label_of.get(name), origin) for name in shown}


def _reference_files(folder: Path | None, cases: Collection[str]) -> dict[str, Path]:
    """Return the label maps of cases in a folder. As in an evaluation, ``a_seg.nii.gz`` belongs to the case ``a``.

    If a second label map of a case was added after the evaluation, return the first by name.
    """
    if folder is None or not folder.is_dir():
        return {}
    extras, files = extra_files(folder), dict[str, Path]()
    for path in labels_in(folder):
        if path.name not in extras:
            files.setdefault(scan_stem(path), path)
    return {case: files[name] for name, case in match_labels(files, cases).items()}


def cases_section(
    results: Results | None,
    gallery: Gallery,
    reported: Mapping[str, ReportedCase] | None = None,
    baseline: Mapping[str, float] | None = None,
) -> Markup:
    """Render one or two rows of pictures for each chosen case: scan, reference and prediction of a slice.

    ``reported`` are the cases by name, by default all cases in the folder of the scores. ``baseline`` is the Dice of
    the baseline by case.
    """
    if results is None:
        return render("cases", empty=Missing("There is no evaluated case to show.", see_results=True))
    reported = reported_cases(results) if reported is None else reported
    scores = case_dice(results.evaluation)
    figures: list[dict[str, Any]] = []
    shown: list[CaseSlice] = []
    for case, rank in chosen_cases(results.ranking).items():
        reported_case = reported.get(case)
        figure = {"case": case, "rank": rank, "dice": scores[case], "baseline": (baseline or {}).get(case)}
        figure |= {"origin": reported_case.origin if reported_case else "", "rows": [], "empty": None}
        arrays = read_arrays(case, reported_case, gallery.classes)
        if isinstance(arrays, str):
            figure["empty"] = Missing(f"No picture: {arrays}.")
        else:
            slices = slices_of(arrays.image, arrays.reference, arrays.prediction, arrays.geometry, gallery.orientation)
            figure["rows"] = [_row(case, each, gallery) for each in slices]
            shown += slices
        figures.append(figure)
    axes = [each.axis for each in shown]
    has_volumes = any(axis is not None for axis in axes)
    sentence = view_sentence(axes, has_volumes, all(each.marks is not None for each in shown))
    return render(
        "cases",
        has_volumes=has_volumes or not shown,
        has_second_rows=any(each.added_classes for each in shown),
        orientation=gallery.orientation.with_channel(sentence) if shown else "",
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


def slices_of(
    image: Plane, reference: Labels, prediction: Labels, geometry: Geometry, orientation: Orientation
) -> tuple[CaseSlice, ...]:
    """Return the slice with the most reference voxels. If it lacks classes, add the slice that shows most of them.

    Arrays are ``(*space)``. Slices are perpendicular to the axis with the largest spacing. An axial slice shows the
    patient's right on the left and the front on top. Without a known orientation, slices are shown as stored.
    """
    cut = orientation.scan_cut(geometry)
    marks, window = orientation.scan_marks(cut, geometry), gray_window(image)

    def slice_at(index: int) -> CaseSlice:
        gray, expected, predicted = (cut.plane(array, index) for array in (image, reference, prediction))
        return CaseSlice(gray, expected, predicted, cut.aspect, cut.axis, marks, window, index + 1, cut.count(image))

    in_reference = _classes(reference)
    only_predicted = _classes(prediction) - in_reference

    def shown_classes(shown: CaseSlice) -> set[int]:
        # classes of the reference count where the reference has them, all others where the prediction has them
        return _classes(shown.reference) | (_classes(shown.prediction) & only_predicted)

    first = slice_at(cut.fullest(reference, prediction))
    indices = cut.through(first.number - 1, MAX_SLICES, reference, prediction)
    if len(indices) > 1:
        first = replace(first, neighbors=tuple(map(slice_at, indices)))
    missing = (in_reference | only_predicted) - shown_classes(first)
    if not missing:
        return (first,)
    voxels = np.isin(reference, sorted(missing)), np.isin(prediction, sorted(missing & only_predicted))
    second = slice_at(cut.fullest(*voxels))
    added = missing & shown_classes(second)
    return first, replace(second, added_classes=tuple(sorted(added)), absent_classes=tuple(sorted(missing - added)))


def _classes(labels: Labels) -> set[int]:
    """Return the classes in a label map, without the background."""
    return {int(value) for value in np.unique(labels) if value > 0}


def _row(case: str, shown: CaseSlice, gallery: Gallery) -> dict[str, Any]:
    frames = []
    for neighbor in shown.neighbors or (shown,):
        if neighbor.number == shown.number:
            frames.append((shown.number, _pictures(case, shown, gallery, MAX_SIDE), True))
        else:
            title = f"{case}, slice {neighbor.number}"
            frames.append((neighbor.number, _pictures(title, neighbor, gallery, MAX_SLICE_SIDE), False))
    added, absent = (gallery.class_names(labels) for labels in (shown.added_classes, shown.absent_classes))
    return {"frames": frames, "number": shown.number, "count": shown.count, "added": added, "absent": absent}


def _pictures(title: str, shown: CaseSlice, gallery: Gallery, limit: int) -> list[Markup]:
    classes = gallery.class_names(shown.added_classes)
    suffix = f" ({joined(classes)})" if classes else ""
    layers = {
        "scan": None,
        "reference": label_layer(shown.reference, limit),
        "prediction": label_layer(shown.prediction, limit),
    }
    style: dict[str, Any] = {"aspect": shown.aspect, "marks": shown.marks, "window": shown.window, "limit": limit}
    return [
        gallery.album.picture(shown.image, layer, alt=f"{title}: {name}{suffix}", **style)
        for name, layer in layers.items()
    ]


def read_arrays(case: str, reported: ReportedCase | None, classes: Sequence[str] = ()) -> CaseArrays | str:
    """Return the arrays of a case, or the reason why it cannot be read. The reason contains no full path."""
    if reported is None:
        return "the manifest of the predictions does not list this case"
    prediction_file = reported.folder / reported.predicted.output
    if reported.reference_source is not None and is_store(reported.reference_source):
        return _read_stored(case, reported.reference_source, prediction_file)
    if reported.reference_file is None or not reported.reference_file.exists():
        return REFERENCE_MISSING
    images = [reported.folder / path for path in reported.predicted.images]
    if not images:
        return "the manifest of the predictions lists no scan of this case"
    if missing := [path.name for path in (*images, prediction_file) if not path.exists()]:
        return f"{missing[0]} has been moved or deleted"
    try:
        scan, predicted = read_case(images, VOLUMES_ARE_CHANNELS), read_label(prediction_file)
        expected = read_label(reported.reference_file, images[0], dict(enumerate(classes)))
    except UserError as error:
        return f"{Path(error.where).name} cannot be read"
    if not scan.geometry.shape == expected.array.shape == predicted.array.shape:
        return DIFFERENT_SHAPES
    return CaseArrays(scan.array[0], expected.array, predicted.array, scan.geometry)


def _read_stored(case: str, path: Path, prediction_file: Path) -> CaseArrays | str:
    """Return the arrays of a case of a store, in the orientation of the original scan."""
    try:
        store, predicted = open_store(path), read_label(prediction_file)
        labeled = (each for each in store.cases if each.label is not None)
        stored = next((each for each in labeled if nfc(each.name) == nfc(case)), None)
        if stored is None or stored.grid.is_resampled:
            return REFERENCE_MISSING
        scan, expected = stored_image(store, stored), stored_reference(store, stored).read()
    except UserError as error:
        return f"{Path(error.where).name} cannot be read"
    if predicted.array.shape != expected.array.shape:
        return DIFFERENT_SHAPES
    return CaseArrays(scan.array[0], expected.array, predicted.array, expected.geometry)
