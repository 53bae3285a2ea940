"""Scans and label maps of a run in a Jupyter notebook, with the widget of ipyniivue."""

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from graftseg.core.colors import color_of
from graftseg.core.packages import import_optional
from graftseg.core.phrases import class_name
from graftseg.data.slices import gray_window
from graftseg.inference.label_maps import LEVELS
from graftseg.reporting.rendering import render
from graftseg.reporting.viewer.case_reader import CaseReader
from graftseg.reporting.viewer.collection import Collection, ViewedCase, collect, require_case
from graftseg.reporting.viewer.volumes import as_nifti

LAYERS = ("reference", "prediction", "uncertainty", "difference")
DIFFERENCES = {"missed": 1, "extra": 4, "another class": 8}
"""Names of the values 1, 2 and 3 of a difference map, and the class whose color each value has."""
OPACITY = 0.5
VIEWER_OPTIONS: dict[str, Any] = {
    "is_radiological_convention": True,
    "multiplanar_force_render": True,
    "crosshair_width": 0.8,
    "crosshair_width_unit": "percent",
    "crosshair_color": (1.0, 1.0, 1.0, 0.6),
}
"""Options of ipyniivue: the patient's right is on the left, and a 3-D rendering is next to the three planes."""


@dataclass(frozen=True)
class Layer:
    """A scan or a label map as a NIfTI file."""

    name: str
    content: bytes  # the bytes of the file
    # the lowest and the highest color of a scan or an uncertainty map, None for a label map
    window: tuple[float, float] | None = None
    colormap: str = "gray"  # the colors of a scan or an uncertainty map
    names: tuple[str, ...] = ()  # names of the values of a label map, background first
    colors: tuple[str, ...] = ()  # colors of the values of a label map, background first


def view(what: str | Path, *, case: str = "", height: int = 420) -> Any:
    """Show the scans of a run, a folder of data or a folder of label maps in Jupyter.

    Return a widget with lists of cases, channels and layers, the scan and its scores. ``case`` is shown first, by
    default the tested case with the lowest Dice. ``height`` is in pixels.
    """
    niivue, widgets = (
        import_optional(name, "the notebook view", extra="notebook") for name in ("ipyniivue", "ipywidgets")
    )
    collection = collect(Path(what))
    require_case(collection, case, Path(what))
    first = next((number for number, viewed in enumerate(collection.cases) if viewed.name == case), 0)
    page = NotebookPage(niivue, widgets, collection, first, height)
    page.show_case()
    return page.node


class NotebookPage:
    """The widget and its controls."""

    def __init__(self, niivue: Any, widgets: Any, collection: Collection, first: int, height: int) -> None:
        self._niivue, self._collection, self._reader = niivue, collection, CaseReader(collection.cases)
        self._viewer = niivue.NiiVue(height=height, **VIEWER_OPTIONS)
        titles = [(_title(viewed), number) for number, viewed in enumerate(collection.cases)]
        self._case = widgets.Dropdown(options=titles, value=first, description="Case")
        self._channel = widgets.Dropdown(options=[("1", 0)], description="Channel")
        self._layer = widgets.ToggleButtons(options=["none"], style={"button_width": "auto"})
        self._scores = widgets.HTML()
        controls = widgets.HBox([self._case, self._channel, self._layer])
        self.node = widgets.VBox([controls, self._viewer, self._scores])
        self._case.observe(self.show_case, names="value")
        self._channel.observe(self._show_volumes, names="value")
        self._layer.observe(self._show_layer, names="value")

    def show_case(self, *_: Any) -> None:
        """Show the chosen case, with its prediction if it has one."""
        case, scan = self._collection.cases[self._case.value], self._reader.scan(self._case.value)
        is_2d = len(scan.geometry.shape) == 2
        slice_type = self._niivue.SliceType
        self._viewer.set_slice_type(slice_type.AXIAL if is_2d else slice_type.MULTIPLANAR)
        self._layer.options = [*(name for name in LAYERS if name in case.layers), "none"]
        self._layer.value = "prediction" if "prediction" in case.layers else self._layer.options[0]
        self._channel.unobserve(self._show_volumes, names="value")  # new options would show the volumes twice
        self._channel.options = [(str(channel + 1), channel) for channel in range(len(scan.array))]
        self._channel.observe(self._show_volumes, names="value")
        self._channel.layout.display = None if len(scan.array) > 1 else "none"
        self._scores.value = score_table(case)
        self._show_volumes()

    def _show_volumes(self, *_: Any) -> None:
        layers = layers_of(self._collection, self._reader, self._case.value, self._channel.value)
        self._viewer.load_volumes([_volume(self._niivue, each) for each in layers])
        self._show_layer()

    def _show_layer(self, *_: Any) -> None:
        for volume in self._viewer.volumes[1:]:
            volume.opacity = OPACITY if volume.name == _file(self._layer.value) else 0.0


def score_table(case: ViewedCase) -> str:
    """Return the scores of a case as an HTML table, or nothing if it has none."""
    rows = [(score.name, _decimal(100 * score.dice), _decimal(score.hd95)) for score in case.scores]
    return render("notebook_scores", rows=rows) if rows else ""


def _decimal(value: float) -> str:
    return f"{value:.1f}" if isfinite(value) else "–"


def layers_of(collection: Collection, reader: CaseReader, number: int, channel: int = 0) -> list[Layer]:
    """Return one channel of a scan and its maps, with axes that point right, anterior and superior."""
    scan, turn = reader.scan(number), reader.turn(number)
    image = scan.array[channel]
    low, high = gray_window(image)
    layers = [Layer("scan", as_nifti(turn.to_volume(image), turn.spacing), (float(low), float(high)))]
    for name in LAYERS:
        if name not in collection.cases[number].layers:
            continue
        labels = reader.layer(number, name).astype(np.uint8)
        if name == "uncertainty":
            content = as_nifti(turn.to_volume(labels), turn.spacing, 1 / LEVELS)
            layers.append(Layer(name, content, (0.0, 1.0), "inferno"))
            continue
        if name == "difference":
            names, colors = tuple(DIFFERENCES), tuple(map(color_of, DIFFERENCES.values()))
        else:
            count = max(len(collection.classes), int(labels.max(initial=0)) + 1)
            names = tuple(class_name(value, collection.classes) for value in range(1, count))
            colors = tuple(color_of(value) for value in range(1, count))
        content = as_nifti(turn.to_volume(labels), turn.spacing)
        layers.append(Layer(name, content, names=("background", *names), colors=("#000000", *colors)))
    return layers


def _volume(niivue: Any, layer: Layer) -> Any:
    """Return a volume of the widget. Values of label maps have the colors of the classes."""
    if layer.window is not None:
        low, high = layer.window
        style = {"colormap": layer.colormap, "cal_min": low, "cal_max": high}
        return niivue.Volume(data=layer.content, name=_file(layer.name), **style)
    volume = niivue.Volume(data=layer.content, name=_file(layer.name), opacity=OPACITY)
    starts = {"R": 1, "G": 3, "B": 5}
    channels = {key: [int(color[start : start + 2], 16) for color in layer.colors] for key, start in starts.items()}
    opaque = [0, *[255] * (len(layer.colors) - 1)]
    volume.set_colormap_label({**channels, "A": opaque, "labels": list(layer.names)})
    return volume


def _file(name: str) -> str:
    return f"{name}.nii"


def _title(case: ViewedCase) -> str:
    details = ", ".join(filter(None, (case.split, "" if case.dice is None else f"Dice {100 * case.dice:.1f} %")))
    return f"{case.name} ({details})" if details else case.name
