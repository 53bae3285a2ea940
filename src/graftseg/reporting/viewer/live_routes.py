"""HTTP routes of a run while it trains: a stream of events, and pictures of snapshots."""

import json
from collections.abc import AsyncIterator, Callable

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from graftseg.core.run_folder import RunFolder
from graftseg.reporting.viewer.live import LiveRun, Message, SnapshotPictures

POLL_SECONDS = 1.0
"""Time between two reads of the files of the run."""


def live_routes(run: RunFolder, has_ended: Callable[[], bool] | None = None) -> list[Route]:
    """Return the routes of a run.

    ``has_ended`` returns whether the training has ended, if the server belongs to the training and ends with it. By
    default, the training has ended when no process trains the run.
    """
    pictures = SnapshotPictures(run)

    async def events(request: Request) -> Response:
        return StreamingResponse(_events(LiveRun(run), has_ended), media_type="text/event-stream")

    def picture(request: Request) -> Response:
        content = pictures.png(request.path_params["step"], request.path_params["name"])
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type="image/png")

    return [Route("/api/live", events), Route("/api/snapshots/{step:int}/{name}.png", picture)]


async def _events(live: LiveRun, has_ended: Callable[[], bool] | None) -> AsyncIterator[str]:
    """Yield all new messages of a run, and ``end`` after its training has ended."""
    is_over = False
    while not is_over:
        is_over = await run_in_threadpool(has_ended or (lambda: not live.is_running))
        for message in await run_in_threadpool(lambda: list(live.new_messages())):
            yield _event(message)
        if not is_over:
            await anyio.sleep(POLL_SECONDS)
    yield _event(("end", {"closes": has_ended is not None}))


def _event(message: Message) -> str:
    name, content = message
    return f"event: {name}\ndata: {json.dumps(content)}\n\n"
