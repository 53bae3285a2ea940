"""Wrong requests with ``--on`` give one error, before a cluster starts."""

import socket
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest
import tiny
from command_line import CommandLine

from graftseg.core import ray_address
from graftseg.core.errors import Code
from graftseg.core.ray_address import check_cluster, cluster_address
from graftseg.data.store import Store
from user_errors import user_error

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture
def words(store: Store, tmp_path: Path) -> list[object]:
    """Return a command that trains."""
    recipe = tmp_path / "tiny.yaml"
    tiny.tiny_recipe().save(recipe)
    return ["train", recipe, "--data", store.path, "--out", tmp_path / "run"]


def test_wrong_requests(cli: CommandLine, words: list[object], tmp_path: Path) -> None:
    assert "ray://HOST:PORT" in cli.fails(*words, "--seeds", 2, "--on", "spark", code=Code.OPTION_INVALID)
    for options in (["--devices", 2], ["--live"], ["--compare"], ["--continue-from", tmp_path]):
        assert str(options[0]) in cli.fails(*words, *options, "--on", "ray", code=Code.OPTION_CONFLICT)
    assert "--seeds or --folds" in cli.fails(*words, "--on", "ray", code=Code.OPTION_CONFLICT)
    assert not (tmp_path / "run").exists()


def test_ray_is_not_installed(cli: CommandLine, words: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "graftseg.core.ray_tasks", raising=False)
    error = cli.fails(*words, "--seeds", 2, "--on", "ray", code=Code.PACKAGE_MISSING)
    assert "pip install '.[ray]'" in error


@needs_ray
def test_no_cluster_answers(cli: CommandLine, words: list[object]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{unused.getsockname()[1]}"
        assert address in cli.fails(*words, "--seeds", 2, "--on", address, code=Code.CLUSTER_UNREACHABLE)


@pytest.fixture
def silent() -> Iterator[str]:
    """Return the address of a program that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


class QuietHandler(BaseHTTPRequestHandler):
    """Logs no requests."""

    def log_message(self, *_: object) -> None:
        """Do nothing."""


@pytest.fixture
def web_server() -> Iterator[str]:
    """Return the address of a program that is not Ray."""
    with ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@needs_ray
@pytest.mark.parametrize("server", ["silent", "web_server"])
@pytest.mark.parametrize("protocol", ["", "ray://"])
def test_another_program_answers(
    cli: CommandLine,
    words: list[object],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    protocol: str,
) -> None:
    address = protocol + request.getfixturevalue(server)
    monkeypatch.setattr(ray_address, "CONNECT_SECONDS", 0.1)
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert address in cli.fails(*words, "--seeds", 2, "--on", "ray", code=Code.CLUSTER_UNREACHABLE)


@pytest.mark.parametrize(
    "address",
    ["ray://", "ray://host", "ray://:10001", "ray://host:0", "ray://host:99999", "ray://a:1:2", "ray://a b:1"],
)
def test_invalid_addresses(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    with user_error(Code.OPTION_INVALID, f"--on {address}"):
        cluster_address(address)
    for variable in (address, address.removeprefix("ray://") or "host"):
        monkeypatch.setenv("RAY_ADDRESS", variable)
        with user_error(Code.OPTION_INVALID, f"RAY_ADDRESS={variable}"):
            cluster_address("ray")


def test_valid_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("node-1.example.org:6379", "ray://10.0.0.1:10001", "[::1]:6379", "auto", "local"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert cluster_address("ray") == address
        assert cluster_address("ray://node:1") == "ray://node:1"
    monkeypatch.setenv("RAY_ADDRESS", "")
    assert cluster_address("ray") == "local"
    monkeypatch.delenv("RAY_ADDRESS")
    assert cluster_address("ray") == "local"


@needs_ray
def test_a_server_that_is_not_a_cluster(monkeypatch: pytest.MonkeyPatch, silent: str) -> None:
    """The health check reports its last line, or that it took too long."""
    monkeypatch.setattr(ray_address, "_greet", lambda host, port: None)
    monkeypatch.setattr(ray_address, "HEALTH_SECONDS", 0.1)
    with pytest.raises(OSError, match="no answer within"):
        check_cluster(silent)
