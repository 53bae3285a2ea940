"""The worked example of CONTRIBUTING.md: its files, and a copy of the repository that contains them."""

import re
import shutil
from pathlib import Path

from markdown_pages import CONTRIBUTING, ROOT, blocks

PLACED = re.compile(
    r"`((?:src|tests|docs)/[\w./-]+\.(?:py|yaml|md))`[^`]*?:\n\n```(?:python|yaml|markdown)\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)
ADDED = re.compile(r"^ (.*)\n\+(.*)$", re.MULTILINE)
"""An existing line and the new line after it, in a diff."""
TABLE = "src/graftseg/methods/__init__.py"
TABLES = ("-m graftseg table all --markdown docs/reference/tables.md", "docs/method_pages.py")
"""The commands of ``make docs``."""
PARTS = ("src", "tests", "docs", "results", "pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def files() -> dict[str, str]:
    """Return the files of the example by path."""
    return dict(PLACED.findall(CONTRIBUTING.read_text()))


def follow(copy: Path) -> Path:
    """Copy the repository and add the files and lines of the example."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    for name, content in files().items():
        assert not (copy / name).exists(), f"{name} already exists"
        (copy / name).write_text(content)
    (difference,) = blocks(CONTRIBUTING, "diff")
    table = (copy / TABLE).read_text()
    for line, new in ADDED.findall(difference):
        assert table.count(f"{line}\n") == 1, f"{TABLE} has no line {line}"
        table = table.replace(f"{line}\n", f"{line}\n{new}\n")
    (copy / TABLE).write_text(table)
    return copy
