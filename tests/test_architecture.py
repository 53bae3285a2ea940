"""The landing page, the architecture page, CONTRIBUTING and the Makefile agree with the code."""

import inspect
import re
import tomllib
from pathlib import Path
from pkgutil import resolve_name

from graftseg.methods.base import Method
from markdown_pages import CONTRIBUTING, DOCS, ROOT, blocks, prose, tables

ARCHITECTURE = DOCS / "explanation" / "architecture.md"
SOURCE = ROOT / "src" / "graftseg"


def test_every_page_is_reachable_from_the_landing_page() -> None:
    landing, links = DOCS / "README.md", re.compile(r"\]\(([^)\s#]+\.md)[^)\s]*\)")
    seen, waiting = set[Path](), [landing]
    while waiting:
        page = waiting.pop()
        if page not in seen and page.is_file():
            seen.add(page)
            waiting += [(page.parent / target).resolve() for target in links.findall(prose(page))]
    assert not set(DOCS.rglob("*.md")) - seen


def test_the_diagram_has_the_layers_of_the_import_contract() -> None:
    (diagram,) = blocks(ARCHITECTURE, "mermaid")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert re.findall(r'"(.*?)"', diagram) == [layer.replace("graftseg.", "") for layer in layers]
    nodes = re.findall(r"(layer\d+)(?:\[.*?\])? --> (layer\d+)", diagram)
    assert nodes == [(f"layer{n}", f"layer{n + 1}") for n in range(1, len(layers))]
    packages = [name for layer in layers for name in layer.replace("graftseg.", "").split(" | ")]
    assert [row[0].strip("`") for row in tables(ARCHITECTURE)["Packages"]] == packages
    assert set(packages) == {
        path.stem for path in (SOURCE).iterdir() if not path.stem.startswith("_") and path.suffix != ".typed"
    }


def test_every_step_of_a_scan_is_linked_to_its_function() -> None:
    for item in ("a labeled scan", "an unlabeled scan", "a new scan", "a corrected label"):
        rows = tables(ARCHITECTURE)[f"The path of {item}"]
        assert len(rows) >= 5
        for _, cell in rows:
            name, target = re.fullmatch(r"\[`([\w.]+)`\]\((\S+)\)", cell).groups()  # type: ignore[union-attr]
            found = inspect.unwrap(resolve_name(name))
            assert Path(str(inspect.getsourcefile(found))) == (ARCHITECTURE.parent / target).resolve(), name


def test_the_contract_of_a_method_is_described() -> None:
    described = {row[0].strip("`").partition("(")[0] for row in tables(ARCHITECTURE)["The contract of a method"]}
    own = {name for name in vars(Method) if not name.startswith("_")} - {"accelerate", "compiler_options"}
    assert described == own


def test_paths_in_contributing_exist() -> None:
    for row in tables(CONTRIBUTING)["Where does my change go?"]:
        for name in re.findall(r"`([\w/.]+(?:/|\.py|\.md|\.yaml))`", " ".join(row[1:])):
            folders = (ROOT, SOURCE)
            is_found = any((folder / name).exists() for folder in folders)
            assert is_found or "NAME" in name or "SETTING" in name or "PACKAGE" in name, name
        listed = r"((?:`\w+`(?:, | and )?)+)"
        cells, after = " ".join(row[1:]), re.compile(rf"`([\w/]+\.py)`: {listed}")
        before = re.compile(rf"{listed} in `([\w/]+\.py)`")
        for path, names in after.findall(cells) + [found[::-1] for found in before.findall(cells)]:
            for name in re.findall(r"`(\w+)`", names) if "NAME" not in path else ():
                assert re.search(rf"^(def |class )?{name}\b", (SOURCE / path).read_text(), re.MULTILINE), name


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    (targets,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert targets.split() == re.findall(r"^([\w-]+):.*## .+$", text, re.MULTILINE)


MAY_READ_OTHERWISE = {
    "core/devices.py": "/proc/stat",
    "core/files.py": "flushes its own temporary files",
    "core/memory.py": "/proc/meminfo",
    "core/software.py": "the source files of this package",
    "data/formats/decoder_child.py": "/proc/self/statm, without other modules of this package",
    "experiments/speed/instruments.py": "/proc/self/status",
    "planning/plan_file.py": "a file of this package",
    "reporting/rendering.py": "a file of this package",
}
"""Modules that read files without ``core/reading.py``, and what they read."""
READING = re.compile(r"\.read_(bytes|text)\(|\.open\((\)|\"rb?\"|encoding)|\bfromfile\((path|file)\b")
OF_A_PATH = re.compile(r"\b(np\.load|torch\.load|open_memmap|safe_open)\((path|file)\b")
"""Functions of packages that open a path. ``check_regular`` must come first."""


def test_only_regular_files_are_read() -> None:
    found = dict[str, str]()
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if (match := READING.search(text)) or ((match := OF_A_PATH.search(text)) and "check_regular(" not in text):
            found[path.relative_to(SOURCE).as_posix()] = match[0]
    assert found.keys() == MAY_READ_OTHERWISE.keys(), found
