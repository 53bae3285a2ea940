"""Galleries of training images, and of the pseudo-labels of a few watched scans over the steps of training."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from markupsafe import Markup

from graftseg.core.phrases import class_name
from graftseg.reporting.missing import TRAIN_COMMAND, Missing
from graftseg.reporting.orientation import Orientation
from graftseg.reporting.pictures import Album, Pixels, Plane, label_layer, outline_layer
from graftseg.reporting.rendering import render
from graftseg.reporting.run_files import Log, Snapshot, read_snapshot, snapshot_names
from graftseg.reporting.svg import evenly_spaced

WATCHED = "X_watch_"  # prefix of the watched scans: the same unlabeled scans in all snapshots of a teacher
MAX_SIDE = 256
MAX_COLUMNS = 6
MAX_ROWS = 4
SNAPSHOTS_PER_STAGE = 3
PASTED = "edge of the pasted region"
TrainingImage = tuple[str, str, list[Markup]]
"""The name of a training image, its step such as ``step 40``, and its pictures."""


@dataclass(frozen=True)
class Gallery:
    """The album of a page, with the classes and the orientation of its pictures."""

    classes: Sequence[str]
    album: Album
    orientation: Orientation

    def class_names(self, labels: Iterable[int]) -> list[str]:
        """Return the names of classes. A class without a name is numbered."""
        return [class_name(label, self.classes) for label in labels]

    def picture(self, image: Plane, layer: Pixels | None, alt: str, *, augmented: bool) -> Markup:
        """Draw an image of a snapshot. ``augmented`` is true if training may have flipped or rotated the image."""
        aspect, marks = self.orientation.training_aspect, self.orientation.training_marks(augmented=augmented)
        plane = self.orientation.training_plane(image)
        return self.album.picture(plane, layer, alt=alt, limit=MAX_SIDE, aspect=aspect, marks=marks)

    def section(self, template: str, *, augmented: bool, **view: Any) -> Markup:
        """Render a section with a legend, and a sentence on the orientation of its pictures."""
        orientation, classes = self.orientation.training_sentence(augmented=augmented), [*enumerate(self.classes)]
        return render(template, orientation=orientation, classes=classes, **view)


def mixed_section(paths: dict[int, Path], log: Log | None, gallery: Gallery) -> Markup:
    """Render training images of the first, the middle and the last snapshot of each stage."""
    stages = [(method, _training_images(steps, paths, gallery)) for method, steps in _stages(paths, log)]
    with_images = [(method, images) for method, images in stages if images]
    if not with_images:
        return render("mixed", empty=Missing("This run has no pictures of training images.", *TRAIN_COMMAND))
    drawn = [picture for _, images in with_images for _, _, pictures in images for picture in pictures]
    has_pasted = any(PASTED in picture for picture in drawn)
    return gallery.section("mixed", augmented=True, stages=with_images, has_pasted=has_pasted)


def watched_section(paths: dict[int, Path], gallery: Gallery) -> Markup:
    """Render pseudo-labels, with a row for each watched scan and a column for each snapshot."""
    steps = [step for step, path in paths.items() if any(map(_is_watched, snapshot_names(path)))]
    if not steps:
        sentence = "This run has no snapshots of pseudo-labels. Only methods with a teacher save them."
        return render("pseudo_labels", empty=Missing(sentence, *TRAIN_COMMAND))
    snapshots = [read_snapshot(paths[steps[index]]) for index in evenly_spaced(len(steps), MAX_COLUMNS)]
    names = sorted({name for snapshot in snapshots for name in snapshot.arrays if _is_watched(name)})[:MAX_ROWS]
    rows = [[_watched_picture(snapshot, name, gallery) for snapshot in snapshots] for name in names]
    return gallery.section("pseudo_labels", augmented=False, steps=[each.step for each in snapshots], rows=rows)


def _training_images(steps: Sequence[int], paths: dict[int, Path], gallery: Gallery) -> list[TrainingImage]:
    snapshots = (read_snapshot(paths[steps[index]]) for index in evenly_spaced(len(steps), SNAPSHOTS_PER_STAGE))
    shown = ((snapshot, name) for snapshot in snapshots for name in snapshot.arrays if not _is_watched(name))
    return [_training_image(snapshot, name, gallery) for snapshot, name in shown if name.startswith("X")]


def _training_image(snapshot: Snapshot, name: str, gallery: Gallery) -> TrainingImage:
    """Draw an image, and its pasted region and target labels if the snapshot contains them."""
    image, suffix = snapshot.arrays[name], name[1:]
    mask = snapshot.arrays.get(f"M{suffix}", snapshot.arrays.get("M"))
    labels = snapshot.arrays.get(f"Y{suffix}")
    layers: dict[str, Pixels | None] = {"image": None}
    if _fits(mask, image):
        layers[PASTED] = outline_layer(gallery.orientation.training_plane(mask))
    if _fits(labels, image):
        layers["target labels"] = label_layer(gallery.orientation.training_plane(labels))
    step = f"step {snapshot.step:,}"
    title = f"{name}, {step}"
    pictures = [gallery.picture(image, layer, f"{title}: {what}", augmented=True) for what, layer in layers.items()]
    return name, step, pictures


def _watched_picture(snapshot: Snapshot, name: str, gallery: Gallery) -> Markup:
    image = snapshot.arrays.get(name)
    if image is None:
        return Markup()
    labels = snapshot.arrays.get("Y" + name[1:])
    alt = f"Unlabeled scan {name.removeprefix(WATCHED)} at step {snapshot.step:,}"
    layer = label_layer(gallery.orientation.training_plane(labels)) if _fits(labels, image) else None
    return gallery.picture(image, layer, alt, augmented=False)


def _fits(array: Plane | None, image: Plane) -> TypeGuard[Plane]:
    return array is not None and array.shape == image.shape


def _is_watched(name: str) -> bool:
    return name.startswith(WATCHED)


def _stages(steps: Iterable[int], log: Log | None) -> list[tuple[str, list[int]]]:
    """Return the method and the snapshot steps of each stage. Without a log, all snapshots are one stage."""
    if log is None or not log.stages:
        return [("All of training", list(steps))]
    stages: list[tuple[str, list[int]]] = [(stage.method, []) for stage in log.stages]
    for step in steps:
        stages[log.stage_of(step)][1].append(step)
    return stages
