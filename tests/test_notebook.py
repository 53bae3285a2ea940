"""The notebook in the documentation: its cells run, and its outputs contain no paths of a machine."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tiny

from graftseg import api
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from markdown_pages import DOCS

NOTEBOOK = DOCS / "tutorials" / "notebook.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
MAX_BYTES = 200_000


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the folders of the demo with tiny runs, in the working directory."""
    monkeypatch.chdir(tmp_path)
    scans = tiny.write_scans(tmp_path / "demo" / "scans", test=27)
    store = prepare(read_layout(scans), tmp_path / "demo" / "store", tiny.tiny_recipe().data)
    for name in ("supervised", "bcp"):
        run = tmp_path / "demo" / name
        api.train(tiny.tiny_recipe(name=name), store.path, run, device="cpu")
        api.predict(run, scans / "imagesTs", device="cpu")
        api.evaluate(run / "predictions", scans / "labelsTs")


@pytest.mark.usefixtures("demo")
@pytest.mark.slow
def test_the_cells_run() -> None:
    names: dict[str, Any] = {}
    for cell in CELLS:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    assert names["labels"].shape == (tiny.SIDE, tiny.SIDE)


def test_every_code_cell_was_executed_in_order() -> None:
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["outputs"] for cell in code)
    assert not any(output["output_type"] == "error" for cell in code for output in cell["outputs"])


def test_the_file_is_small_and_names_no_machine() -> None:
    text = NOTEBOOK.read_text()
    assert len(text) < MAX_BYTES
    outputs = json.dumps([cell.get("outputs") for cell in CELLS])
    plain = re.sub(r'"image/png": "[^"]*"', "", outputs)
    assert not re.search(r"(^|[\s'\"(])/(tmp|home|root|work|Users)", plain)


def test_links_of_the_notebook_exist() -> None:
    text = "".join(line for cell in CELLS if cell["cell_type"] == "markdown" for line in cell["source"])
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links and all((NOTEBOOK.parent / link).exists() for link in links)
