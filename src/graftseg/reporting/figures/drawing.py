"""Drawing with matplotlib: one style, and files that depend only on their content."""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError, in_one_line
from graftseg.core.files import check_target_file, write_bytes
from graftseg.core.packages import import_optional

TEXT_WIDTH = 6.9  # width of the text on a page of a paper, in inches
DOTS_PER_INCH = 220
LABELED, UNLABELED = "#0072b2", "#d55e00"
"""Colors of labeled and of unlabeled data, distinguishable with red-green color blindness."""
INK, FAINT = "#222222", "#d9d9d9"
# no date and no program version, so that equal figures are equal files
METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
}
FORMATS = tuple(METADATA)
TICKS = {"labelsize": 7, "color": "#555555", "major.width": 0.6}
STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#777777",
    "axes.spines.top": False,
    "axes.spines.right": False,
    **{f"{axis}tick.{key}": value for axis in "xy" for key, value in TICKS.items()},
    "text.color": INK,
    "axes.labelcolor": INK,
    "legend.frameon": False,
    "text.parse_math": False,  # a name may contain dollar signs
    "svg.hashsalt": "graftseg",
    "pdf.fonttype": 42,  # journals reject fonts of type 3
}


@dataclass(frozen=True)
class FigureResult:
    """A written figure: its file, a caption, and the numbers it shows as a table."""

    path: Path
    caption: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@contextmanager
def canvas(path: Path, width: float, height: float) -> Iterator[Any]:
    """Yield an empty matplotlib figure of this size in inches, then write it as SVG, PNG or PDF.

    The suffix of the path is the format. The user's settings of matplotlib have no effect.
    """
    matplotlib = import_optional("matplotlib", "figures", extra="figures")
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = import_module("matplotlib.figure").Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
        yield figure
        content, suffix = io.BytesIO(), path.suffix.lower()
        figure.savefig(content, format=suffix[1:], metadata=METADATA[suffix], facecolor="white")
        write_bytes(path, content.getvalue())


def check_target(path: Path) -> None:
    """Raise a UserError if matplotlib is missing, the suffix is unknown, or the file cannot be written."""
    if path.suffix.lower() not in FORMATS:
        finding, remedy = "unknown format of a figure", f"choose a file that ends in {' or '.join(FORMATS)} as --out"
        raise UserError(Code.OPTION_INVALID, path, finding, remedy)
    import_optional("matplotlib", "figures", extra="figures")
    check_target_file(path)


def color_patch(color: str, name: str) -> Any:
    """Return an entry of a legend: a colored square and a name."""
    return import_module("matplotlib.patches").Patch(color=color, label=shortened(name))


def hide_frame(axes: Any) -> None:
    """Hide the frame and the ticks of a picture."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def row_label(axes: Any, *lines: str) -> None:
    """Write the name of a row to the left of its first panel."""
    axes.set_ylabel("\n".join(map(shortened, lines)), fontweight="bold", labelpad=6)


def shortened(text: str, length: int = 24) -> str:
    """Return a name in one line. Replace the middle of a long name by an ellipsis."""
    line = in_one_line(text)
    half = (length - 1) // 2
    return line if len(line) <= length else f"{line[:half]}…{line[-half:]}"


def run_names(paths: Sequence[Path]) -> list[str]:
    """Return a different name for each path. Names are the last parts of the paths, such as ``run-1/bcp``."""
    all_parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, all_parts)) + 1):
        names = ["/".join(parts[-length:]) for parts in all_parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
