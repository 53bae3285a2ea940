"""HTTP routes of the annotation: lease and open a case, add strokes, finish a case, and continue the training."""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from graftseg.core.errors import Code, UserError
from graftseg.data.annotation import RUN, Action, Draft, parse_runs
from graftseg.reporting.viewer.annotator import Annotator
from graftseg.reporting.viewer.retraining import Retraining
from graftseg.reporting.viewer.server import OCTET_STREAM, case_number
from graftseg.reporting.viewer.volumes import as_nifti

LEASE_SECONDS = 10.0  # a lease ends if its tab sends no request for this time, because the tab may have been closed
MAX_JSON_BYTES = 1000
MIN_STROKE_LIMIT = 2**16  # a stroke may always have this many bytes, even for a tiny scan


class _TabRequest(BaseModel):
    """The browser tab that sends a request, and the number of the last stroke that it has sent."""

    model_config = ConfigDict(extra="forbid", strict=True)
    tab: str = Field(min_length=1, max_length=64)
    seq: int = 0


class _FinishRequest(_TabRequest):
    action: Action


class Leases:
    """The right to change a case. One browser tab at a time has it, and other tabs only show the case."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._holders: dict[int, tuple[str, float]] = {}  # tab that has the lease, and time of its last request
        self._seconds: dict[int, float] = {}  # time with a lease since the last ``collect_seconds``

    def take(self, case: int, tab: str) -> bool:
        """Give or renew the lease of a case, unless another tab has it. Return whether the tab has the lease."""
        with self._lock:
            now = self._clock()
            holder, last_request = self._holders.get(case, ("", float("-inf")))
            elapsed = now - last_request
            if elapsed < LEASE_SECONDS:
                if holder != tab:
                    return False
                self._seconds[case] = self._seconds.get(case, 0.0) + elapsed
            self._holders[case] = tab, now
            return True

    def collect_seconds(self, case: int) -> float:
        """Return for how long tabs have had the lease of a case since the last call, in seconds."""
        with self._lock:
            return self._seconds.pop(case, 0.0)

    def release(self, case: int) -> None:
        """End the lease of a case."""
        with self._lock:
            self._holders.pop(case, None)


class AnnotationRoutes:
    """The routes of an annotator. Only the tab that has the lease of a case may change the case."""

    def __init__(self, annotator: Annotator, retraining: Retraining, leases: Leases | None = None) -> None:
        self._annotator, self._retraining, self._leases = annotator, retraining, leases or Leases()

    def routes(self) -> list[Route]:
        """Return all routes."""
        case = "/api/cases/{number:int}"
        return [
            Route(f"{case}/draft.nii", self.show_draft),
            Route(f"{case}/open", self.open, methods=["POST"]),
            Route(f"{case}/strokes", self.add_stroke, methods=["POST"]),
            Route(f"{case}/finish", self.finish, methods=["POST"]),
            Route(f"{case}/reset", self.reset, methods=["POST"]),
            Route("/api/train", self.training, methods=["GET", "POST"]),
        ]

    def session(self, description: dict[str, Any]) -> dict[str, Any]:
        """Complete the description of the session: add rank and state of each case, and sort by rank."""
        cases = []
        for number in self._annotator.order():
            entry = description["cases"][number]
            has_draft = Draft.exists(self._annotator.folder.draft(entry["name"]))
            facts = {"state": self._annotator.state(number), "has_draft": has_draft}
            cases.append(entry | facts | self._annotator.ranking.get(entry["name"], {}))
        return description | {"mode": "annotate", "cases": cases, "key": self._annotator.folder.key}

    def show_draft(self, request: Request) -> Response:
        """Send the drawing of a case."""
        number = case_number(request, self._annotator.cases)
        count, drawing = self._annotator.draft(number).snapshot()
        scan, turn = self._annotator.reader.scan(number), self._annotator.reader.turn(number)
        volume = drawing.reshape(turn.to_volume(scan.array[0]).shape, order="F")
        return Response(as_nifti(volume, turn.spacing), media_type=OCTET_STREAM, headers={"x-seq": str(count)})

    async def open(self, request: Request) -> Response:
        """Give the lease of a case to a tab, unless another tab has it. Answer whether the tab may change the case."""
        number, body = case_number(request, self._annotator.cases), await _read_json(request, _TabRequest)
        draft = await run_in_threadpool(self._annotator.draft, number)
        writable = self._leases.take(number, body.tab)
        await run_in_threadpool(self._save_time, number, draft)
        return JSONResponse({"writable": writable, "seq": draft.count})

    async def add_stroke(self, request: Request) -> Response:
        """Add a stroke to a draft. When the answer is sent, the stroke is on disk."""
        number, query = case_number(request, self._annotator.cases), request.query_params
        if not query.get("seq", "").isdecimal():
            raise HTTPException(400)
        self._require_lease(number, query.get("tab", ""))
        draft = await run_in_threadpool(self._annotator.draft, number)
        limit = max(MIN_STROKE_LIMIT, RUN.itemsize * len(draft.drawing))
        runs = parse_runs(await _read_body(request, limit), len(draft.drawing), len(self._annotator.collection.classes))
        return JSONResponse({"seq": await run_in_threadpool(draft.add, int(query["seq"]), runs)})

    async def reset(self, request: Request) -> Response:
        """Discard all strokes of a draft."""
        number, body = case_number(request, self._annotator.cases), await _read_json(request, _TabRequest)
        await self._draft_to_change(number, body)
        return JSONResponse({"seq": await run_in_threadpool(self._annotator.restart, number)})

    async def finish(self, request: Request) -> Response:
        """Accept, skip or reject a case."""
        number, body = case_number(request, self._annotator.cases), await _read_json(request, _FinishRequest)
        draft = await self._draft_to_change(number, body)
        await run_in_threadpool(self._save_time, number, draft)
        finished = await run_in_threadpool(self._annotator.finish, number, body.action)
        self._leases.release(number)
        self._annotator.prefetch()
        return JSONResponse(finished)

    async def training(self, request: Request) -> Response:
        """Start a continued training (POST), or return its progress (GET)."""
        if request.method == "POST":
            await run_in_threadpool(self._retraining.start)
        return JSONResponse(self._retraining.describe())

    def _save_time(self, number: int, draft: Draft) -> None:
        """Add the time with a lease since the last call to the time of the draft."""
        draft.set_seconds(draft.seconds + self._leases.collect_seconds(number))

    def _require_lease(self, number: int, tab: str) -> None:
        if not tab or not self._leases.take(number, tab):
            name = self._annotator.cases[number].name
            raise UserError(Code.FOLDER_LOCKED, name, "another tab is changing this case", "close the other tab")

    async def _draft_to_change(self, number: int, body: _TabRequest) -> Draft:
        """Return the draft of a case. Raise if another tab has the lease, or if the page shows other strokes."""
        self._require_lease(number, body.tab)
        draft = await run_in_threadpool(self._annotator.draft, number)
        if body.seq != draft.count:
            finding = f"the page has {body.seq} strokes, but {draft.count} are saved"
            raise UserError(Code.RUN_MISMATCH, "draft", finding, "wait until all strokes are saved, or reload the page")
        return draft


async def _read_body(request: Request, limit: int) -> bytes:
    content = bytearray()
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > limit:
                raise UserError(Code.SCAN_TOO_LARGE, "request", f"more than {limit} bytes", "reload the page")
    except ClientDisconnect:
        raise HTTPException(400) from None
    return bytes(content)


async def _read_json(request: Request, model: type[Any]) -> Any:
    try:
        return model.model_validate_json(await _read_body(request, MAX_JSON_BYTES))
    except ValidationError:
        raise HTTPException(400) from None
