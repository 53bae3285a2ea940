"""The loop of annotation on a short demo: correct a scan, save it, and continue the training with its new label."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import BrowserContext
from viewer_browser import Start, ViewerTab, wait_until

from graftseg.cli import demo
from graftseg.core.run_folder import RunFolder
from graftseg.data.phantom import make_phantom
from graftseg.data.scans import read_geometry, read_label
from graftseg.data.store import find_store, open_store
from graftseg.reporting.viewer.volumes import Turn

pytestmark = [pytest.mark.web, pytest.mark.slow]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Return the run ``demo/bcp`` of ``make demo``, with fewer steps and without the other run."""
    monkeypatch.setattr(demo, "METHODS", ("bcp",))
    steps = ["stages.0.steps=120", "stages.1.steps=40"]
    demo.compare(tmp_path / "demo", seed=0, dimensions=2, device="cpu", overrides=steps)
    return RunFolder(tmp_path / "demo" / "bcp")


@pytest.fixture
def recorded(context: BrowserContext, tmp_path: Path) -> Iterator[BrowserContext]:
    """Return a browser window that is recorded. ``playwright show-trace`` shows the file ``recording.zip``.

    pytest deletes it after a successful test, unless it is called with ``-o tmp_path_retention_policy=all``.
    """
    context.tracing.start(screenshots=True)
    yield context
    context.tracing.stop(path=tmp_path / "recording.zip")


def test_a_scan_is_corrected_saved_and_learned_from(run: RunFolder, start: Start, recorded: BrowserContext) -> None:
    tab = ViewerTab(recorded, start("annotate", run.path).url)
    tab.wait_ready()
    tab.wait_writable()
    name, scans = tab.case_name, run.path.parent / "scans"
    image, label = scans / "imagesUn" / f"{name}_0000.nii.gz", scans / "labelsTr" / f"{name}.nii.gz"
    geometry = read_geometry(image)
    number = int(name.removeprefix("unlabeled_"))
    truth = make_phantom(0, "unlabeled", number, geometry.shape, demo.APPEARANCE_SHIFT).label
    drawn = Turn.of(geometry).to_volume(truth)
    changed = np.count_nonzero(tab.draft() != drawn)
    assert changed and not label.exists()

    tab.correct(drawn)
    assert np.array_equal(tab.draft(), drawn)
    tab.page.get_by_role("button", name="Accept").click()
    wait_until(lambda: tab.case_name not in ("", name))
    saved = read_label(label)
    assert np.array_equal(saved.array, truth) and saved.geometry == geometry
    log = [json.loads(line) for line in (scans / "annotations" / "log.jsonl").read_text().splitlines()]
    assert [(entry["action"], entry["case"], entry["changed_voxels"]) for entry in log] == [("accept", name, changed)]

    tab.page.get_by_role("button", name="Retrain").click()
    training = tab.page.locator(".group", has=tab.page.get_by_role("button", name="Retrain"))
    wait_until(lambda: "Training," in training.inner_text())
    wait_until(lambda: "Finished in" in training.inner_text() or "failed" in training.inner_text(), 240)
    continued = RunFolder(run.path.with_name("bcp-2"))
    assert "Finished in" in training.inner_text() and "bcp-2" in training.inner_text()
    before, after = run.manifest(), continued.manifest()
    gain, known = after["gain"], after["continued_from"]
    assert (after["status"], known["run"], known["new_labels"]) == ("finished", "bcp", [name])
    assert after["store"]["labeled"] == sorted([*before["store"]["labeled"], name])
    assert known["weights"] == before["weights"] != after["weights"]
    assert gain["after"] is not None
    store = open_store(find_store(continued))
    learned = next(case for case in store.of("labeled") if case.name == name)
    assert np.array_equal(store.read_label(learned), truth)

    # drawings without changes start again from the network that is used now
    assert f"{gain['before']:.2f}" in training.locator(".notice").inner_text()
    wait_until(lambda: np.array_equal(tab.draft(), tab.labels("prediction")))
    assert np.array_equal(tab.saved_draft(), tab.draft())
    assert tab.errors == []
