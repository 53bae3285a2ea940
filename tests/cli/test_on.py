"""Wrong requests with ``--on`` give one error, before a cluster starts."""

import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import tiny
from command_line import CommandLine

from graftseg.core.errors import Code
from graftseg.data.store import Store


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
    assert "pip install 'graftseg[ray]'" in error


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_no_cluster_answers(cli: CommandLine, words: list[object]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{unused.getsockname()[1]}"
        assert address in cli.fails(*words, "--seeds", 2, "--on", address, code=Code.CLUSTER_UNREACHABLE)
