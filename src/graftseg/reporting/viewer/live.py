"""The progress of a run, read from its files and sent to the page: state, new points of curves, new snapshots."""

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from os import SEEK_END
from time import monotonic
from typing import Any

import anyio
import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from graftseg.core.errors import UserError
from graftseg.core.files import parse_json
from graftseg.core.reading import open_regular
from graftseg.core.run_folder import RunFolder
from graftseg.core.teacher_checks import TeacherCheck
from graftseg.data.slices import to_gray
from graftseg.recipes.recipe import load_recipe
from graftseg.recipes.settings import StageSettings
from graftseg.reporting.orientation import orientation_of
from graftseg.reporting.pictures import Pixels, encode_png, rgb_table
from graftseg.reporting.run_files import read_recipe, read_snapshot, read_store, snapshot_names, snapshot_paths
from graftseg.training.adapted_stages import adapted_stages

MAX_POINTS = 400  # largest number of points of a curve in one message
POLL_SECONDS = 1.0  # time between two reads of the files of the run
RATE_SECONDS = 20.0  # the step rate is the mean over this time
Message = tuple[str, dict[str, Any]]
Point = list[float]


class LiveRun:
    """Reads what is new in a run folder since the last call."""

    def __init__(self, run: RunFolder, clock: Callable[[], float] = monotonic) -> None:
        self._run, self._clock = run, clock
        self._file, self._offset, self._step, self._snapshot = 0, 0, 0, 0
        self._times: deque[tuple[float, int]] = deque()
        self._stages = load_recipe(run.recipe_file).stages

    @property
    def is_running(self) -> bool:
        """Return whether a process is training this run."""
        return self._run.status == "running"

    def new_messages(self) -> Iterator[Message]:
        """Yield messages about new points, the new state and new snapshots."""
        curves = thinned(curves_of(self._new_lines()))
        if curves:
            yield "points", {"curves": curves}
        yield "state", self._state()
        for step, path in snapshot_paths(self._run).items():
            if step > self._snapshot:
                self._snapshot = step
                yield "snapshot", {"step": step, "pictures": sorted(snapshot_names(path))}

    def _new_lines(self) -> list[dict[str, Any]]:
        """Return the lines that were added to the log. An incomplete last line is read in the next call."""
        if not self._run.log_file.is_file():
            return []
        file = self._run.log_file.stat().st_ino
        with open_regular(self._run.log_file) as stream:
            # a resumed run replaces the log by its first lines
            if file != self._file or self._offset > stream.seek(0, SEEK_END):
                self._file, self._offset = file, 0
            stream.seek(self._offset)
            *complete, _ = stream.read().split(b"\n")
        self._offset += sum(len(line) + 1 for line in complete)
        lines = [parse_json(line, allow_nan=True) for line in complete]
        self._step = max((line["global_step"] for line in lines), default=self._step)
        return lines

    def _state(self) -> dict[str, Any]:
        now = self._clock()
        self._times.append((now, self._step))
        while now - self._times[0][0] > RATE_SECONDS and len(self._times) > 2:
            self._times.popleft()
        then, first = self._times[0]
        rate = (self._step - first) / (now - then) if now > then and self._step > first else None
        stages = trained_stages(self._stages, self._run.teacher_checks())
        total = stages[-1]["last"]
        left = (total - self._step) / rate if rate else None
        progress = {"status": self._run.status, "step": self._step, "total": total}
        return progress | {"steps_per_second": rate, "remaining": left, "stages": stages}


def trained_stages(stages: Sequence[StageSettings], checks: Iterable[TeacherCheck]) -> list[dict[str, Any]]:
    """Return the method, the first and the last step of each stage of a recipe, as changed by checks of the teacher."""
    for check in checks:
        stages = [stage for stage, _ in adapted_stages(stages, check)]
    ends = zip(stages, accumulate(stage.steps for stage in stages), strict=True)
    return [{"method": stage.method, "first": end - stage.steps + 1, "last": end} for stage, end in ends]


def curves_of(lines: list[dict[str, Any]]) -> dict[str, list[Point]]:
    """Return the points of all curves by name. Values that are not finite are left out."""
    curves: dict[str, list[Point]] = {}
    for line in lines:
        named: dict[str, Any] = {name: line[name] for name in ("total", "lr") if name in line}
        for group in ("terms", "validation"):
            named |= {f"{group}/{name}": value for name, value in line.get(group, {}).items()}
        for name, value in named.items():
            if isinstance(value, int | float) and np.isfinite(value):
                curves.setdefault(name, []).append([line["global_step"], value])
    return curves


def thinned(curves: dict[str, list[Point]]) -> dict[str, list[Point]]:
    """Return at most ``MAX_POINTS`` evenly spaced points of each curve, including the last."""
    strides = {name: -(-len(points) // MAX_POINTS) for name, points in curves.items()}
    return {name: points[(len(points) - 1) % strides[name] :: strides[name]] for name, points in curves.items()}


def live_routes(run: RunFolder, has_ended: Callable[[], bool] | None = None) -> list[Route]:
    """Return the routes of a run: a stream of events, and the pictures of snapshots.

    ``has_ended`` returns whether the training has ended. It is given if the training has started this server, which
    then ends with the training. By default, the training has ended when no process trains the run.
    """
    # cached, because opening a store of many scans takes long
    orientation = cache(lambda: orientation_of(read_recipe(run), read_store(run), has_volumes=None))

    async def events(request: Request) -> Response:
        return StreamingResponse(_events(LiveRun(run), has_ended), media_type="text/event-stream")

    def picture(request: Request) -> Response:
        step, name = request.path_params["step"], request.path_params["name"]
        try:
            array = read_snapshot(snapshot_paths(run)[step]).arrays[name]
        except (KeyError, UserError):
            raise HTTPException(404) from None
        pixels = _pixels(name, orientation().training_plane(array))
        return Response(encode_png(pixels), media_type="image/png")

    return [Route("/api/live", events), Route("/api/snapshots/{step:int}/{name}.png", picture)]


async def _events(live: LiveRun, has_ended: Callable[[], bool] | None) -> AsyncIterator[str]:
    """Yield all new messages of a run, and ``end`` after its training has ended."""
    is_over = False
    while not is_over:
        is_over = await run_in_threadpool(has_ended or (lambda: not live.is_running))
        for message in await run_in_threadpool(lambda: list(live.new_messages())):
            yield _event(*message)
        if not is_over:
            await anyio.sleep(POLL_SECONDS)
    yield _event("end", {"closes": has_ended is not None})


def _event(name: str, content: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(content)}\n\n"


def _pixels(name: str, plane: Any) -> Pixels:
    """Return an image in gray, a label map in the colors of its classes, or a mask in black and white."""
    if name.startswith("X"):
        return to_gray(plane)
    if name.startswith("M"):
        return np.where(plane > 0, 255, 0).astype(np.uint8)
    labels = np.asarray(plane, dtype=np.int64)
    return np.asarray(rgb_table(int(labels.max(initial=0)) + 1)[labels])
