"""The web server of the viewer: pages, scans and maps, and the routes of annotation and live training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from graftseg.core.colors import color_of
from graftseg.core.errors import Code, UserError
from graftseg.data.slices import gray_window
from graftseg.inference.label_maps import LEVELS
from graftseg.reporting.rendering import slider_script
from graftseg.reporting.viewer.access import Access, Gate
from graftseg.reporting.viewer.case_reader import CaseReader
from graftseg.reporting.viewer.collection import Collection, ViewedCase
from graftseg.reporting.viewer.volumes import Turn, center_slices, nifti_parts, nifti_size, shown_type

STATIC = Path(__file__).with_name("static")  # the front end, built by ``make web``
OCTET_STREAM = "application/octet-stream"
STATUS = {Code.FILE_MISSING: 404, Code.FOLDER_LOCKED: 409, Code.RUN_MISMATCH: 409, Code.SCAN_TOO_LARGE: 413}
"""HTTP status of user errors, 422 by default."""

Describe = Callable[[dict[str, Any]], dict[str, Any]]  # a function that completes the description of the session


@dataclass(frozen=True)
class Viewer:
    """The content that the server shows."""

    collection: Collection
    reader: CaseReader
    report: Callable[[], str] | None = None  # function that renders the report as HTML, None without a run
    is_live: bool = False  # whether the run is being trained


def create_app(
    viewer: Viewer, access: Access, routes: Sequence[BaseRoute] = (), session: Describe | None = None
) -> Starlette:
    """Return the web application. Annotation and live training add ``routes``. Annotation completes the ``session``."""
    pages = CasePages(viewer)

    def show_session(request: Request) -> Response:
        description = pages.session()
        return JSONResponse(description if session is None else session(description))

    def show_report(request: Request) -> Response:
        if viewer.report is None:
            raise HTTPException(404)
        return HTMLResponse(viewer.report(), headers={"content-security-policy": _report_policy()})

    def show_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, UserError)
        return JSONResponse(error.to_json(), STATUS.get(error.code, 422))

    return Starlette(
        routes=[
            Route("/", pages.index),
            Route("/report", show_report),
            Route("/api/session", show_session),
            *routes,
            Route("/api/cases/{number:int}", pages.case),
            Route("/api/cases/{number:int}/image.nii", pages.image),
            Route("/api/cases/{number:int}/center", pages.center),
            Route("/api/cases/{number:int}/{layer}.nii", pages.layer),
            Mount("/static", StaticFiles(directory=STATIC, check_dir=False)),
        ],
        middleware=[Middleware(Gate, access=access)],
        exception_handlers={UserError: show_error},
    )


class CasePages:
    """Routes that describe cases and send their volumes."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer, self._reader = viewer, viewer.reader

    def index(self, request: Request) -> Response:
        """Send the page. A link with the name of a case leads to its number, because browsers remember addresses."""
        name = request.query_params.get("case")
        if name is None:
            return FileResponse(STATIC / "index.html")
        numbers = [number for number, case in enumerate(self._reader.cases) if case.name == name]
        return RedirectResponse(f"/#number={numbers[0]}" if numbers else "/", 303)

    def session(self) -> dict[str, Any]:
        """Describe everything that is shown."""
        collection = self._viewer.collection
        return {
            "mode": "view",
            "kind": collection.kind,
            "title": collection.title,
            "classes": [
                {"value": value, "name": name, "color": color_of(value) if value else None}
                for value, name in enumerate(collection.classes)
            ],
            "cases": [describe_case(number, case) for number, case in enumerate(collection.cases)],
            "has_report": self._viewer.report is not None,
            "is_live": self._viewer.is_live,
        }

    def case(self, request: Request) -> Response:
        """Describe one case."""
        number = case_number(request, self._reader.cases)
        case, scan, turn = self._reader.cases[number], self._reader.scan(number), self._reader.turn(number)
        description = {
            "id": number,
            "name": case.name,
            "shape": turn.to_volume(scan.array[0]).shape,
            "voxel_type": shown_type(scan.array).name,
            "spacing": [*turn.spacing, *(1.0,) * (3 - len(turn.spacing))],
            "channels": len(scan.array),
            "window": gray_window(scan.array[0]),
            "is_2d": len(scan.geometry.shape) == 2,
            "is_placed": scan.geometry.is_placed,
            "layers": case.layers,
            "scores": [{"class": s.name, "dice": _finite(s.dice), "hd95": _finite(s.hd95)} for s in case.scores],
        }
        return JSONResponse(description)

    def image(self, request: Request) -> Response:
        """Send one channel of a scan."""
        return _volume_response(*self._channel(request))

    def center(self, request: Request) -> Response:
        """Send the middle slices of one channel, which the page shows while it loads all voxels."""
        volume, _ = self._channel(request)
        return Response(center_slices(volume), media_type=OCTET_STREAM)

    def _channel(self, request: Request) -> tuple[NDArray[Any], Turn]:
        number = case_number(request, self._reader.cases)
        scan, turn = self._reader.scan(number), self._reader.turn(number)
        channel = request.query_params.get("channel", "0")
        if not channel.isdecimal() or int(channel) >= len(scan.array):
            raise HTTPException(404)
        return turn.to_volume(scan.array[int(channel)]), turn

    def layer(self, request: Request) -> Response:
        """Send a map of a case."""
        number, name = case_number(request, self._reader.cases), request.path_params["layer"]
        if name not in self._reader.cases[number].layers:
            raise HTTPException(404)
        volume, turn = self._reader.layer(number, name), self._reader.turn(number)
        return _volume_response(turn.to_volume(volume), turn, 1 / LEVELS if name == "uncertainty" else 1.0)


def case_number(request: Request, cases: Sequence[Any]) -> int:
    """Return the number of the case in a request. Answer 404 if there is no such case."""
    number: int = request.path_params["number"]
    if number >= len(cases):
        raise HTTPException(404)
    return number


def describe_case(number: int, case: ViewedCase) -> dict[str, Any]:
    """Return the entry of a case in the list. Annotation replaces the rank, its reasons and the state."""
    return {
        "id": number,
        "name": case.name,
        "split": case.split,
        "dice": None if case.dice is None else _finite(case.dice),
        "uncertainty": case.uncertainty,
        "rank": None,
        "reasons": [],
        "layers": case.layers,
        "state": "open",
        "has_draft": False,
    }


def _volume_response(volume: NDArray[Any], turn: Turn, slope: float = 1.0) -> Response:
    """Send a volume in parts. While one part is sent, the next is converted."""
    headers = {"content-length": str(nifti_size(volume))}
    return StreamingResponse(nifti_parts(volume, turn.spacing, slope), media_type=OCTET_STREAM, headers=headers)


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _report_policy() -> str:
    """Return the content security policy of the report, which contains styles and one known script."""
    sources = ("style-src 'unsafe-inline'", "img-src data:", f"script-src '{slider_script()['digest']}'")
    denied = (f"{name} 'none'" for name in ("default-src", "base-uri", "form-action", "frame-ancestors"))
    return "; ".join((*denied, *sources))
