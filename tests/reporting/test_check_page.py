import re
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
from report_fakes import Page, decode_uri

from graftseg.core.types import Split
from graftseg.data.check import Examination, Finding, examine
from graftseg.data.checks.findings import Severity
from graftseg.data.layouts import read_layout
from graftseg.data.phantom import write_phantoms
from graftseg.data.scans import read_label, write_label
from graftseg.data.slices import Thumbnail
from graftseg.reporting.check_page import render_check

SECTIONS = ["findings", "scan-comparison", "spacing", "classes", "pictures", "labels"]
HOSTILE_NAME = 'case<script>alert("1")</script>'


def make(folder: Path, labeled: int, unlabeled: int = 0, test: int = 0, *, axes: int = 3) -> None:
    counts: dict[Split, int] = {"labeled": labeled, "unlabeled": unlabeled, "test": test}
    write_phantoms(folder, shape=(24,) * axes, counts=counts, seed=3, shift=0.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("someone") / "scans & more"
    make(folder, 4, 5, 1)
    return folder


@pytest.fixture(scope="module")
def examination(root: Path) -> Examination:
    return examine(read_layout(root), pictures=True, workers=1)


def with_findings(examination: Examination, severity: Severity = "warning") -> Examination:
    """Return an examination with findings of one severity; one finding names many cases with hostile names."""
    names = [case.name for case in examination.fingerprint.cases]
    known = tuple(
        Finding("warning", "<b>odd</b>", name, "3 voxels", "try `graftseg <x>`", (name,)) for name in names[:2]
    )
    many = Finding("warning", "many", HOSTILE_NAME, "all", "look", (HOSTILE_NAME, *names))
    findings = tuple(replace(finding, severity=severity) for finding in (*known, many))
    return replace(examination, findings=findings)


def first_two(examination: Examination) -> dict[str, Thumbnail]:
    return dict([*examination.thumbnails.items()][:2])


def rendered(examination: Examination, folder: Path) -> Page:
    return Page(render_check(examination, folder / "check.html").read_text())


def test_sections_and_counts(examination: Examination, tmp_path: Path) -> None:
    page = rendered(examination, tmp_path)
    assert [attributes["id"] for tag, attributes in page.elements if tag == "section"] == SECTIONS
    assert "scans & more" in page.text
    assert "nothing to report" in page.text and "Ready for training." in page.text
    assert re.search(r"labeled\s*4\s*unlabeled\s*5\s*test\s*1\s*classes\s*3", page.text)
    links = {address[1:] for address in page.attributes("href") if address.startswith("#")}
    assert links <= set(page.attributes("id"))


def test_the_same_data_gives_the_same_bytes(examination: Examination, root: Path, tmp_path: Path) -> None:
    first = render_check(examination, tmp_path / "one.html").read_bytes()
    again = examine(read_layout(root), pictures=True, workers=2)
    assert render_check(again, tmp_path / "two.html").read_bytes() == first


def test_the_page_needs_nothing_and_runs_nothing(examination: Examination, tmp_path: Path) -> None:
    page = rendered(with_findings(examination), tmp_path)
    text = (tmp_path / "check.html").read_text()
    assert "<script" not in text and "<b>odd" not in text
    assert not re.search(r"https?://|url\(|@import", text)
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "iframe", "object"})
    addresses = page.attributes("href") + page.attributes("src")
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in addresses)
    assert HOSTILE_NAME in page.text and "<b>odd</b>" in page.text and "graftseg <x>" in page.text


@pytest.mark.parametrize(
    ("severity", "verdict"),
    [
        ("error", "Not ready: fix 3 errors first."),
        ("warning", "Usable, with 3 warnings."),
        ("note", "Ready for training."),
    ],
)
def test_verdict_is_above_the_findings(
    examination: Examination, tmp_path: Path, severity: Severity, verdict: str
) -> None:
    text = rendered(with_findings(examination, severity), tmp_path).text
    assert text.index(verdict) < text.index("Finding")


def test_cases_of_findings_are_shown_with_their_labels(examination: Examination, tmp_path: Path) -> None:
    page = rendered(replace(with_findings(examination), thumbnails=first_two(examination)), tmp_path)
    pictures = [decode_uri(address) for address in page.attributes("href") if address.startswith("data:")]
    gray, layers = [[picture for picture in pictures if picture.ndim == axes] for axes in (2, 3)]
    # two cases with findings, each once among the pictures and once on the contact sheet, which refers to the same scan
    assert (len(gray), len(layers)) == (2, 4)
    assert all(layer[..., 3].any() for layer in layers)
    assert "all 11 cases" in page.text
    assert sum(tag == "li" for tag, _ in page.elements) == 3 + 2 * (len(examination.dataset.classes) - 1)


def test_the_contact_sheet_shows_all_label_maps_of_a_clean_data_set(examination: Examination, tmp_path: Path) -> None:
    assert examination.findings == ()
    page = rendered(examination, tmp_path)
    shown = {*re.findall(r"label map of (\w+)", page.text)}
    assert shown == {case.name for case in examination.dataset.cases if case.label}
    assert len(shown) == 5


def test_sizes_of_classes_in_test_scans(examination: Examination, tmp_path: Path) -> None:
    page = rendered(examination, tmp_path)
    (case,) = examination.fingerprint.of("test")
    assert f"{case.name}: {case.class_sizes[1]:.3g}" in page.text and "1 of 1" in page.text
    assert examination.test_likeness.sentence in page.text


def test_at_most_twelve_pictures(examination: Examination, tmp_path: Path) -> None:
    thumbnail = next(iter(examination.thumbnails.values()))
    many = {f"c{n}": replace(thumbnail, image=np.roll(thumbnail.image, n, axis=1)) for n in range(20)}
    findings = tuple(Finding("note", "odd", name, "1", "look", (name,)) for name in many)
    page = rendered(replace(examination, thumbnails=many, findings=findings), tmp_path)
    assert page.text.count("c11: odd") == 1
    assert "c12: odd" not in page.text


def test_page_contains_no_paths_and_no_header_fields(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "DOE_JOHN" / "set"
    make(folder, 2, 2)
    for path in (folder / "imagesTr").iterdir():
        scan = nibabel.load(path)
        scan.header["descrip"], scan.header["db_name"] = b"Doe^John 1970-01-01", b"PID12345"
        nibabel.save(scan, path)
    examination = examine(read_layout(folder), pictures=True)
    elsewhere = Finding("error", "odd", str(folder / "imagesTr" / "x.nii"), "1 file", "look")
    page = render_check(replace(examination, findings=(elsewhere,)), tmp_path / "check.html").read_text()
    assert "imagesTr/x.nii" in page
    for word in ("Doe", "1970", "PID12345", "DOE_JOHN", str(tmp_path)):
        assert word not in page


def test_sizes_of_classes_are_those_of_the_label_maps(root: Path, examination: Examination, tmp_path: Path) -> None:
    page = rendered(examination, tmp_path)
    case = examination.dataset.of("labeled")[0]
    assert case.label is not None
    label = read_label(case.label)
    size = np.count_nonzero(label.array == 1) * np.prod(label.geometry.spacing) / 1000
    assert f"{case.name}: {size:.3g}" in page.text
    assert "4 of 4" in page.text


def test_page_of_empty_labels_and_2d_scans(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make(folder, 1, axes=2)
    (label,) = (folder / "labelsTr").iterdir()
    empty = read_label(label)
    write_label(label, np.zeros_like(empty.array), empty.geometry)
    page = rendered(examine(read_layout(folder), pictures=True), tmp_path)
    assert "No label map could be read, or all label maps are empty." in page.text
    assert "Nothing to compare: 1 labeled and 0 unlabeled scans." in page.text


def test_page_without_readable_scans(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make(folder, 1, axes=2)
    (image,) = (folder / "imagesTr").iterdir()
    image.write_bytes(b"garbage")
    page = rendered(examine(read_layout(folder), pictures=True), tmp_path)
    assert "No scan could be read." in page.text
    assert "Not ready: fix 1 error first." in page.text
