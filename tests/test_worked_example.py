"""The worked example of CONTRIBUTING.md passes all checks in a copy of the repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from markdown_pages import CONTRIBUTING, ROOT, blocks
from worked_example import ADDED, TABLES, files, follow

METHOD = "pseudo-label"
CHECKED = (
    "tests/methods",
    "tests/training/test_fast_path.py",
    "tests/experiments/test_methods_reference.py",
    "tests/experiments/test_method_pages.py",
)
CHOSEN = "pseudo-label or pseudo_label or test_methods_reference or up_to_date"


def test_the_example_names_every_file() -> None:
    assert list(files()) == [
        "src/graftseg/methods/pseudo_label.py",
        f"src/graftseg/recipes/demo-2d/{METHOD}.yaml",
        "tests/methods/test_pseudo_label.py",
        f"docs/reference/methods/{METHOD}.md",
        f"src/graftseg/recipes/acdc-3/{METHOD}.yaml",
    ]
    (difference,) = blocks(CONTRIBUTING, "diff")
    assert [new.split()[-1].strip(",") for _, new in ADDED.findall(difference)] == ["PseudoLabel", "PseudoLabel"]
    assert "`make docs`" in CONTRIBUTING.read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert all(command.removeprefix("-m ") in makefile for command in TABLES)


@pytest.mark.slow
def test_a_copy_with_the_example_passes_its_tests(tmp_path: Path) -> None:
    copy = follow(tmp_path / "copy")

    def run(*words: str) -> None:
        command, environment = [sys.executable, *words], os.environ | {"PYTHONPATH": "src"}
        done = subprocess.run(command, cwd=copy, env=environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    for command in TABLES:
        run(*command.split())
    assert f"| acdc-3/{METHOD} |" in (copy / "docs/reference/tables.md").read_text()
    assert f"| [`{METHOD}`]({METHOD}.md) | the student's own" in (copy / "docs/reference/methods/README.md").read_text()
    own = [name for name in files() if name.endswith(".py")]
    run("-m", "ruff", "check", "--quiet", *own)
    run("-m", "ruff", "format", "--quiet", "--check", *own)
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", *CHECKED, "-k", CHOSEN)
