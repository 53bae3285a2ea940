from pathlib import Path

import numpy as np
from report_fakes import Page, write_facts, write_log, write_snapshots

from graftseg.core.run_folder import RunFolder
from graftseg.reporting.gallery import Gallery, mixed_section, watched_section
from graftseg.reporting.orientation import Orientation
from graftseg.reporting.pictures import Album
from graftseg.reporting.run_files import read_curves, snapshot_paths

CLASSES = ["background", "ring", "core"]


def test_first_middle_and_last_of_each_stage(tmp_path: Path) -> None:
    write_facts(tmp_path)
    write_log(tmp_path)
    write_snapshots(tmp_path, (0, 2, 4, 6, 8, 10, 15))
    run = RunFolder(tmp_path)
    page = Page(mixed_section(snapshot_paths(run), read_curves(run), Gallery(CLASSES, Album(), Orientation())))
    assert [text for element, text in page.texts if element == "h3"] == ["bcp-pretrain", "bcp"]
    shown = [text for element, text in page.texts if element in ("b", "figcaption")]
    assert shown[:6] == ["X_mixed", " step 0", "X_mixed", " step 4", "X_mixed", " step 8"]
    assert shown[6:] == ["X_in", " step 10", "X_out", " step 10", "X_in", " step 15", "X_out", " step 15"]


def test_three_views_of_a_mixed_image(tmp_path: Path) -> None:
    write_snapshots(tmp_path, (15,))
    page = Page(mixed_section(snapshot_paths(RunFolder(tmp_path)), None, Gallery(CLASSES, Album(), Orientation())))
    titles = [text for element, text in page.texts if element == "title"]
    views = ("image", "edge of the pasted region", "target labels")
    assert titles == [f"{name}, step 15: {view}" for name in ("X_in", "X_out") for view in views]
    assert "the edge of its pasted region (white inside, black outside)" in page.text


def test_image_without_mask_and_label_has_one_picture(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    path = tmp_path / "snapshots" / "000003.npz"
    np.savez(path, X_labeled=np.eye(4), Y_labeled=np.eye(5, dtype=np.uint8))
    page = Page(mixed_section(snapshot_paths(RunFolder(tmp_path)), None, Gallery(CLASSES, Album(), Orientation())))
    assert [text for element, text in page.texts if element == "title"] == ["X_labeled, step 3: image"]
    assert "pasted region" not in page.text


def test_watched_scans_in_rows_and_snapshots_in_columns(tmp_path: Path) -> None:
    write_snapshots(tmp_path, (0, 5, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19))
    page = Page(watched_section(snapshot_paths(RunFolder(tmp_path)), Gallery(CLASSES, Album(), Orientation())))
    heads = [text for element, text in page.texts if element == "th"]
    assert heads == ["step 10", "step 12", "step 14", "step 15", "step 17", "step 19"]
    pictures = [attributes["href"] for element, attributes in page.elements if "href" in attributes]
    assert sum(address.startswith("#scan-1") for address in pictures) == 5  # the scan itself is stored once
    assert len(pictures) == 12
    assert "of the teacher in evaluation mode. The pseudo-labels used for training" in page.text
