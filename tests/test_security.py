"""Promises of SECURITY.md that hold for the whole package: no code from files, no network."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import yaml

from graftseg.recipes.reading import _Loader
from markdown_pages import DOCS, ROOT, tables

SOURCE = ROOT / "src" / "graftseg"
THREATS = DOCS / "explanation" / "threat-model.md"
NETWORK = {
    "ftplib",
    "http",
    "requests",
    "smtplib",
    "socket",
    "ssl",
    "urllib",
    "webbrowser",
    "xmlrpc",
    "aiohttp",
    "httpx",
}
CODE = {"code", "dill", "joblib", "marshal", "runpy", "shelve", "subprocess"}
VIEWER = "reporting/viewer"
ALLOWED = {
    "core/ray_address.py": {"socket", "subprocess"},
    "data/formats/decoder.py": {"subprocess"},
    f"{VIEWER}/access.py": {"http", "urllib"},
    f"{VIEWER}/launch.py": {"socket", "urllib", "webbrowser"},
    f"{VIEWER}/retraining.py": {"subprocess"},
    f"{VIEWER}/view.py": {"subprocess"},
}
"""Modules that start child processes, that listen on the loopback interface, or that look for a cluster."""
REQUIRED = {"torch.load": ("weights_only", "True"), "np.load": ("allow_pickle", "False")}
FORBIDDEN = re.compile(r"eval|exec|compile|pickle\.\w+|yaml\.(unsafe_|full_)?load|torch\.hub\.\w+|os\.(system|popen)")

LOADERS = (
    "eval",
    "exec",
    "compile",
    "pickle",
    "yaml",
    r"torch\s*\.\s*(load|hub)",
    r"np\s*\.\s*load",
    "system",
    "popen",
)
"""Parts of all names of ``REQUIRED`` and ``FORBIDDEN``."""


@cache
def texts() -> list[tuple[Path, str]]:
    return [(path.relative_to(SOURCE), path.read_text()) for path in sorted(SOURCE.rglob("*.py"))]


def trees(words: Iterable[str]) -> list[tuple[Path, ast.Module]]:
    """Parse only the modules that contain one of the words, because parsing takes long."""
    anywhere = re.compile("|".join(words))
    return [(path, ast.parse(text)) for path, text in texts() if anywhere.search(text)]


def imported(tree: ast.Module) -> set[str]:
    """Return the top-level packages that a module imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_no_module_imports_a_network_library_or_a_loader_of_code() -> None:
    lines = [rf"(import|from)[^\n]*\b{name}\b" for name in sorted(NETWORK | CODE)]
    found = {str(path): names for path, tree in trees(lines) if (names := imported(tree) & (NETWORK | CODE))}
    assert found.keys() == ALLOWED.keys()
    assert {path: names for path, names in found.items() if not names <= ALLOWED.get(path, set())} == {}


def test_no_function_connects_to_another_machine() -> None:
    names = ("connect", "create_connection", "urlopen", "urlretrieve", "open_connection")
    found = trees(names)
    calls = {
        (str(path), ast.unparse(node.func))
        for path, tree in found
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    connecting = re.compile(rf".*\.({'|'.join(names)})")
    clusters = [("core/ray_address.py", "socket.create_connection")]  # the address that --on names
    assert [call for call in calls if connecting.fullmatch(call[1])] == clusters


def unsafe_calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
            forbidden = FORBIDDEN.fullmatch(name) and ast.unparse(node) != "yaml.load(text, _Loader)"
            if forbidden or (name in REQUIRED and keywords.get(REQUIRED[name][0]) != REQUIRED[name][1]):
                yield name


def test_every_loader_refuses_code() -> None:
    loads = sum(text.count("weights_only=True") for _, text in texts())
    assert loads >= 2 and issubclass(_Loader, yaml.SafeLoader)
    found = {(str(path), call) for path, tree in trees(LOADERS) for call in unsafe_calls(tree)}
    assert found == {("core/tasks.py", f"pickle.{name}") for name in ("dumps", "loads")}  # between ranks, no files
    example = ast.parse("torch.load(a)\nnp.load(a, allow_pickle=True)\neval(a)\nyaml.load(a)\nmodel.eval()")
    assert list(unsafe_calls(example)) == ["torch.load", "np.load", "eval", "yaml.load"]


def test_every_threat_has_a_test() -> None:
    rows = [row for heading, table in tables(THREATS).items() if heading != "Who supplies what" for row in table]
    assert len(rows) > 15
    assert not [row[0] for row in rows if "`tests/" not in row[-1]]
