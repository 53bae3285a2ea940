"""Scans and label maps of a run in a Jupyter notebook, with the widget of ipyniivue."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graftseg.core.colors import color_of
from graftseg.core.packages import import_optional
from graftseg.core.phrases import class_name
from graftseg.data.gray_window import gray_window
from graftseg.reporting.viewer.case_reader import CaseReader
from graftseg.reporting.viewer.collection import Collection, ViewedCase, collect, require_case
from graftseg.reporting.viewer.volumes import as_nifti

LABEL_LAYERS = ("reference", "prediction", "difference")
DIFFERENCES = {"missed": 1, "extra": 4, "another class": 8}
"""The meanings of the values 1, 2 and 3 of a difference map, each with the class from which it has its color."""
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
    """A scan or a label map as a NIfTI file.

    content: the bytes of the file
    window: the gray window of a scan, None for a label map
    names: names of the values of a label map, background first
    colors: colors of the values of a label map, background first
    """

    name: str
    content: bytes
    window: tuple[float, float] | None = None
    names: tuple[str, ...] = ()
    colors: tuple[str, ...] = ()


def view(what: str | Path, *, case: str = "", height: int = 420) -> Any:
    """Show the scans of a run, a folder of data or a folder of label maps in Jupyter.

    Return a widget with a list of cases, a list of layers and the scan. ``case`` is shown first, by default the tested
    case with the lowest Dice. ``height`` is in pixels.
    """
    niivue, widgets = (
        import_optional(name, "the notebook view", extra="notebook") for name in ("ipyniivue", "ipywidgets")
    )
    collection = collect(Path(what))
    require_case(collection, case, Path(what))
    first = next((number for number, viewed in enumerate(collection.cases) if viewed.name == case), 0)
    reader, viewer = CaseReader(collection.cases), niivue.NiiVue(height=height, **VIEWER_OPTIONS)
    titles = [(_title(viewed), number) for number, viewed in enumerate(collection.cases)]
    cases = widgets.Dropdown(options=titles, value=first, description="Case")
    layer = widgets.ToggleButtons(options=["none"], style={"button_width": "auto"})

    def show_layer(*_: Any) -> None:
        for volume in viewer.volumes[1:]:
            volume.opacity = OPACITY if volume.name == _file(layer.value) else 0.0

    def show_case(*_: Any) -> None:
        layers = layers_of(collection, reader, cases.value)
        is_2d = len(reader.scan(cases.value).geometry.shape) == 2
        viewer.set_slice_type(niivue.SliceType.AXIAL if is_2d else niivue.SliceType.MULTIPLANAR)
        names = [label_layer.name for label_layer in layers[1:]]
        layer.options = [*names, "none"]
        layer.value = "prediction" if "prediction" in names else layer.options[0]
        viewer.load_volumes([_volume(niivue, each) for each in layers])
        show_layer()

    show_case()
    cases.observe(show_case, names="value")
    layer.observe(show_layer, names="value")
    return widgets.VBox([widgets.HBox([cases, layer]), viewer])


def layers_of(collection: Collection, reader: CaseReader, number: int) -> list[Layer]:
    """Return the first channel of a scan and its label maps, with axes that point right, anterior and superior."""
    scan, turn = reader.scan(number), reader.turn(number)
    image = scan.array[0]
    low, high = gray_window(image)
    layers = [Layer("scan", as_nifti(turn.to_volume(image), turn.spacing), (float(low), float(high)))]
    for name in LABEL_LAYERS:
        if name not in collection.cases[number].layers:
            continue
        labels = reader.layer(number, name).astype(np.uint8)
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
        return niivue.Volume(data=layer.content, name=_file(layer.name), colormap="gray", cal_min=low, cal_max=high)
    volume = niivue.Volume(data=layer.content, name=_file(layer.name), opacity=OPACITY)
    starts = {"R": 1, "G": 3, "B": 5}
    channels = {key: [int(color[start : start + 2], 16) for color in layer.colors] for key, start in starts.items()}
    opaque = [0, *[255] * (len(layer.colors) - 1)]
    volume.set_colormap_label({**channels, "A": opaque, "labels": list(layer.names)})
    return volume


def _file(name: str) -> str:
    return f"{name}.nii"


def _title(case: ViewedCase) -> str:
    parts = [case.split, f"Dice {100 * case.dice:.1f} %" if case.dice is not None else ""]
    details = ", ".join(part for part in parts if part)
    return f"{case.name} ({details})" if details else case.name
