"""What the network was shown, and how the pseudo-labels of the same scans changed over training."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from graftseg.reporting.folder import Log, Snapshot, read_snapshot, snapshot_names
from graftseg.reporting.markup import Html, join, missing, section, tag, wide
from graftseg.reporting.orientation import NOWHERE, Orientation
from graftseg.reporting.palette import legend
from graftseg.reporting.pictures import Album, Plane, label_layer, outline_layer
from graftseg.reporting.png import Pixels

WATCHED = "X_watch_"
LARGEST_SIDE = 256
COLUMNS = 6
ROWS = 4
COMMAND = "graftseg train RECIPE --data DATA --out RUN"


def mixed_section(
    paths: dict[int, Path],
    log: Log | None,
    classes: Sequence[str],
    album: Album,
    lie: Orientation = NOWHERE,
) -> Html:
    """Training images of the first, the middle and the last snapshot of each stage."""
    title = "What the network was shown"
    stages = [_stage_images(name, steps, paths, album, lie) for name, steps in _stages(paths, log)]
    if not any(stages):
        return section("mixed", title, missing("This run holds no pictures of training images.", COMMAND))
    text = (
        "Each training image as the network saw it; where something was pasted, with the edge of the pasted region, "
        "whose inner side is white; and with the labels that the loss held the prediction against."
    )
    said = tag("p", lie.said(augmented=True), class_="caption")
    return section("mixed", title, tag("p", text), said, legend(classes), *stages)


def watched_section(
    paths: dict[int, Path],
    classes: Sequence[str],
    album: Album,
    lie: Orientation = NOWHERE,
) -> Html:
    """Rows: the same unlabeled scans. Columns: snapshots. Drawn: the pseudo-label at that moment."""
    title = "Pseudo-labels over training"
    steps = [step for step, path in paths.items() if any(map(_is_watched, snapshot_names(path)))]
    if not steps:
        sentence = "This run watched no unlabeled scans; methods with a teacher do."
        return section("pseudo-labels", title, missing(sentence, COMMAND))
    snapshots = [read_snapshot(paths[step]) for step in _spread(steps, COLUMNS)]
    names = sorted({name for snapshot in snapshots for name in snapshot.arrays if _is_watched(name)})[:ROWS]
    head = tag("tr", *(tag("th", f"step {snapshot.step:,}", scope="col") for snapshot in snapshots))
    rows = [tag("tr", *(tag("td", _watched(snapshot, name, album, lie)) for snapshot in snapshots)) for name in names]
    strip = tag("table", tag("thead", head), tag("tbody", *rows), class_="strip")
    text = (
        "The same unlabeled scans through training, with what the teacher took for their labels at each step, asked "
        "in evaluation mode; the pseudo-labels of training itself come from training mode and may differ."
    )
    said = tag("p", lie.said(augmented=False), class_="caption")
    return section("pseudo-labels", title, tag("p", text), said, legend(classes), wide(strip, title))


def _stage_images(method: str, steps: Sequence[int], paths: dict[int, Path], album: Album, lie: Orientation) -> Html:
    """The training images of a stage under its name; nothing where its snapshots hold none."""
    figures = [
        _training_image(snapshot, name, album, lie)
        for snapshot in (read_snapshot(paths[step]) for step in _spread(steps, 3))
        for name in snapshot.arrays
        if name.startswith("X") and not _is_watched(name)
    ]
    return join([tag("h3", method), tag("div", *figures, class_="gallery")]) if figures else Html("")


def _training_image(snapshot: Snapshot, name: str, album: Album, lie: Orientation) -> Html:
    """Image, image with the mask's outline, image with the supervisory signal, as far as these are there."""
    image, suffix = snapshot.arrays[name], name[1:]
    mask = snapshot.arrays.get(f"M{suffix}", snapshot.arrays.get("M"))
    labels = snapshot.arrays.get(f"Y{suffix}")
    layers: dict[str, Pixels | None] = {"image": None}
    if _fits(mask, image):
        layers["edge of the pasted region"] = outline_layer(lie.plane(mask))
    if _fits(labels, image):
        layers["supervisory signal"] = label_layer(lie.plane(labels))
    where = f"step {snapshot.step:,}"
    how: dict[str, Any] = {"limit": LARGEST_SIDE, "aspect": lie.aspect, "marks": lie.marks(augmented=True)}
    pictures = [
        album.picture(lie.plane(image), layer, alt=f"{name}, {where}: {what}", **how) for what, layer in layers.items()
    ]
    return tag("figure", tag("figcaption", tag("b", name), f" {where}"), tag("div", *pictures, class_="row"))


def _watched(snapshot: Snapshot, name: str, album: Album, lie: Orientation) -> Html:
    image = snapshot.arrays.get(name)
    if image is None:
        return Html("")
    labels = snapshot.arrays.get("Y" + name[1:])
    where = f"Unlabeled scan {name.removeprefix(WATCHED)} at step {snapshot.step:,}"
    layer = label_layer(lie.plane(labels)) if _fits(labels, image) else None
    how: dict[str, Any] = {"limit": LARGEST_SIDE, "aspect": lie.aspect, "marks": lie.marks(augmented=False)}
    return album.picture(lie.plane(image), layer, alt=where, **how)


def _fits(array: Plane | None, image: Plane) -> TypeGuard[Plane]:
    return array is not None and array.shape == image.shape


def _is_watched(name: str) -> bool:
    return name.startswith(WATCHED)


def _stages(steps: Iterable[int], log: Log | None) -> list[tuple[str, list[int]]]:
    """The snapshots of each stage with its method; one stage without a name where there is no log."""
    if log is None or not log.stages:
        return [("All of training", list(steps))]
    members: list[tuple[str, list[int]]] = [(stage.method, []) for stage in log.stages]
    for step in steps:
        members[log.stage_of(step)][1].append(step)
    return members


def _spread(steps: Sequence[int], count: int) -> list[int]:
    """At most ``count`` of the steps, evenly apart, the first and the last among them."""
    if len(steps) <= count:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (count - 1))] for place in range(count)]
