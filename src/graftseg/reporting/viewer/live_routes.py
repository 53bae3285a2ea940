"""Routes of a run while it trains: a stream of events, and pictures of snapshots."""

import json
from collections.abc import AsyncIterator

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from graftseg.core.run_folder import RunFolder
from graftseg.reporting.viewer.live import LiveRun, Message, snapshot_picture

POLL_SECONDS = 1.0
"""Time between two reads of the files of the run."""


def live_routes(run: RunFolder) -> list[Route]:
    """Return the routes of a run."""

    async def events(request: Request) -> Response:
        return StreamingResponse(_events(LiveRun(run)), media_type="text/event-stream")

    def picture(request: Request) -> Response:
        content = snapshot_picture(run, request.path_params["step"], request.path_params["name"])
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type="image/png")

    return [Route("/api/live", events), Route("/api/snapshots/{step:int}/{name}.png", picture)]


async def _events(live: LiveRun) -> AsyncIterator[str]:
    """Yield all new messages of a run, and ``end`` after its training has ended."""
    is_running = True
    while is_running:
        is_running = await run_in_threadpool(lambda: live.is_running)
        for message in await run_in_threadpool(lambda: list(live.new_messages())):
            yield _event(message)
        if is_running:
            await anyio.sleep(POLL_SECONDS)
    yield _event(("end", {"report": True}))


def _event(message: Message) -> str:
    name, content = message
    return f"event: {name}\ndata: {json.dumps(content)}\n\n"
