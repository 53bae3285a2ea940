"""Pages of the documentation and their parts, for tests."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
PAGES = [
    README,
    CONTRIBUTING,
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "results" / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def tables(page: Path) -> dict[str, list[list[str]]]:
    """Return the cells of all tables by heading, without the table heads."""
    found: dict[str, list[list[str]]] = {}
    heading, inside = "", False
    for line in page.read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line.startswith(("|--", "| --")):
            inside = True
        elif inside and line.startswith("|"):
            found.setdefault(heading, []).append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        else:
            inside = False
    return found


def sections(page: Path) -> dict[str, str]:
    """Return the text of every section by its second-level heading."""
    parts = re.split(r"^## (.*)\n", page.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def load(path: Path) -> ModuleType:
    """Import a script of the documentation as a module."""
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
