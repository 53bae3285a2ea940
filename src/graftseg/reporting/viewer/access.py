"""Access control of the viewer: only browsers on this machine that have the token are served."""

import hmac
import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy: no inline script, nothing from other origins."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
REQUEST_HEADER = "x-graftseg"
"""Header that every POST request needs. Pages of other origins cannot send it, because no CORS response allows it."""


@dataclass(frozen=True)
class Access:
    """The port of the server and the token that opens it."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def url(self) -> str:
        """Return the address that opens the page."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, str]:
        """Return the allowed values of the Host header. An attacker may point other names to this machine."""
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    @property
    def cookie(self) -> str:
        """Return the name of the cookie with the token. All ports share cookies, so the name contains the port."""
        return f"graftseg-{self.port}"

    def is_token(self, text: str | None) -> bool:
        """Compare a token in constant time."""
        return text is not None and hmac.compare_digest(text.encode(), self.token.encode())


class Gate:
    """ASGI middleware that refuses requests without the token or from another page, and adds security headers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope) or self._redirect(scope)
        await (answer or self._app)(scope, receive, send_secured)

    def _refusal(self, scope: Scope) -> Response | None:
        request = Request(scope)
        headers = request.headers
        if headers.get("host") not in self._access.hosts:
            return PlainTextResponse("wrong host", 421)
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._access.hosts:
            return PlainTextResponse("wrong origin", 403)
        if scope["method"] not in ("GET", "HEAD") and headers.get(REQUEST_HEADER) != "1":
            return PlainTextResponse("not a request of the viewer", 403)
        has_token = self._access.is_token(request.cookies.get(self._access.cookie)) or self._redirect(scope) is not None
        return None if has_token else PlainTextResponse("open the address that graftseg printed", 403)

    def _redirect(self, scope: Scope) -> Response | None:
        """For the address with the token, return a redirect to the address without it, and a cookie with the token."""
        query: dict[str, Any] = parse_qs(scope["query_string"].decode("latin-1"))
        tokens = query.pop("token", [])
        if scope["path"] != "/" or len(tokens) != 1 or not self._access.is_token(tokens[0]):
            return None
        other_parameters = urlencode(query, doseq=True)
        answer = RedirectResponse(f"/?{other_parameters}" if other_parameters else "/", 303)
        answer.set_cookie(self._access.cookie, self._access.token, httponly=True, samesite="strict")
        return answer
