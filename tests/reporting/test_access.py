import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from viewer_fakes import ACCESS, client_of

from graftseg.core.errors import Code
from graftseg.reporting.viewer.access import HEADERS, Access, Gate
from graftseg.reporting.viewer.launch import listen
from user_errors import user_error


def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


APP = Starlette(
    routes=[Route("/", hello), Route("/api", hello, methods=["GET", "POST"])],
    middleware=[Middleware(Gate, access=ACCESS)],
)


def test_the_address_with_the_token_sets_a_cookie_and_hides_the_token() -> None:
    client = client_of(APP, token=False)
    answer = client.get(f"/?token={ACCESS.token}&case=a%20b", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?case=a+b")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"graftseg-8000={ACCESS.token};")
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert client.get("/").text == "hello"


@pytest.mark.parametrize("path", ["/", "/api", "/?token=x", f"/api?token={ACCESS.token}", "/?token="])
def test_no_page_without_the_token(path: str) -> None:
    answer = client_of(APP, token=False).get(path)
    assert (answer.status_code, answer.text == "hello") == (403, False)


def test_a_wrong_cookie_is_refused() -> None:
    client = client_of(APP, token=False)
    client.cookies.set(ACCESS.cookie, "x" * 32)
    assert client.get("/").status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:8001", ""])
def test_other_host_names_are_refused(host: str) -> None:
    assert client_of(APP).get("/", headers={"host": host}).status_code == 421


def test_localhost_is_allowed() -> None:
    assert client_of(APP).get("/", headers={"host": "localhost:8000"}).status_code == 200


def test_requests_of_other_pages_are_refused() -> None:
    client = client_of(APP)
    assert client.post("/api", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200
    assert client.post("/api", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/api", headers={"origin": "null"}).status_code == 403
    assert client.post("/api", headers={"x-graftseg": ""}).status_code == 403


def test_every_answer_has_the_security_headers() -> None:
    for client in (client_of(APP), client_of(APP, token=False)):
        answer = client.get("/")
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "access-control-allow-origin" not in answer.headers


def test_the_server_listens_on_this_machine_only() -> None:
    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_in_use_is_an_error() -> None:
    with listen(0) as listener:
        port = listener.getsockname()[1]
        with user_error(Code.OPTION_INVALID, f"--port {port}"):
            listen(port)


def test_tokens_are_random_and_not_printed() -> None:
    first, second = Access(1), Access(1)
    assert first.token != second.token
    assert len(first.token) >= 32
    assert first.token not in repr(first)
