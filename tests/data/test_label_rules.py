"""Labels that no network can learn from are refused alike by whoever plans and by whoever prepares."""

import json
from pathlib import Path
from shlex import quote

import numpy as np
import pytest
from check_fakes import geometry, image, label, put

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import as_read, prepare
from graftseg.data.sources import Sources
from graftseg.evaluation.evaluate import check_label_values
from graftseg.planning import make_plan
from user_errors import user_error

ONE = {"background": 0, "liver": 1}
MENDED = r"`graftseg check '.*/my scans' --fix OUT` writes a copy with the values 0 and 1\.$"


def scans(root: Path, *values: int, classes: dict[str, int] | None = None, origin: float = 0.0) -> Path:
    for number in range(2):
        put(root, f"imagesTr/l{number}", image(number))
        put(root, f"labelsTr/l{number}", label(*values), geometry(origin=origin))
    put(root, "imagesUn/u", image(7))
    if classes:
        (root / "dataset.json").write_text(json.dumps({"labels": classes}))
    return root


def refusals(data: Path | Sources, out: Path) -> list[str]:
    """What planning and preparing say."""
    said = []
    with pytest.raises(UserError) as planned:
        api.plan(data, out / "plan.yaml", device="cuda")
    said.append(str(planned.value))
    with pytest.raises(UserError) as prepared:
        prepare(read_layout(data), out / "store", as_read(3))
    said.append(str(prepared.value))
    assert not (out / "plan.yaml").exists() and not (out / "store" / "manifest.json").exists()
    return said


@pytest.mark.parametrize(
    ("values", "classes", "sentence"),
    [
        ((255, 255), None, r"l0\.nii\.gz: a mask of 0 and 255 where 1 is the first class; " + MENDED),
        ((255, 255), ONE, r"l0\.nii\.gz: a mask of 0 and 255 where 1 is the first class; " + MENDED),
        ((1, 255), None, r"l0\.nii\.gz: the label value 255 is above 254; number the classes"),
        ((1, 3), {**ONE, "tumour": 2}, r"l0\.nii\.gz: the label value 3 is not among the classes 0 to 2; name the"),
        ((1, 3), {**ONE, "tumour": 3}, r"dataset\.json: the label values 0, 1, 3 are not consecutive"),
        ((1,), {str(value): value for value in range(256)}, r"dataset\.json: 256 classes, at most 255 are supported"),
    ],
)
def test_planning_refuses_what_preparing_does(
    tmp_path: Path, values: tuple[int, ...], classes: dict[str, int] | None, sentence: str
) -> None:
    data = scans(tmp_path / "my scans", *values, classes=classes)
    planned, prepared = refusals(data, tmp_path)
    assert planned == prepared
    with pytest.raises(UserError, match=sentence):
        make_plan(read_layout(data), device="cuda", timed=False)


def test_labels_that_lie_elsewhere(tmp_path: Path) -> None:
    data = scans(tmp_path / "scans", 1, origin=30.0)
    planned, prepared = refusals(data, tmp_path)
    assert planned == prepared and "l0.nii.gz: image and label lie on different grids" in planned


def test_folders_named_one_by_one_have_no_mended_copy(tmp_path: Path) -> None:
    root = scans(tmp_path / "scans", 255)
    planned, prepared = refusals(Sources(root / "imagesTr", root / "labelsTr"), tmp_path)
    assert planned == prepared and planned.endswith("; write the masks as 0 and 1.")


def test_a_mended_copy_is_offered_only_of_a_folder_that_a_check_takes(tmp_path: Path) -> None:
    reference = tmp_path / "labelsTs/a.nii.gz"
    remedies = []
    for folders in (["imagesTs", "labelsTs"], ["imagesTr", "labelsTr"]):
        for folder in folders:
            (tmp_path / folder).mkdir()
        with pytest.raises(UserError) as error:
            check_label_values(reference, np.array([0, 255]), {1: "liver"})
        remedies.append(error.value.remedy)
    assert remedies[0] == "write the masks as 0 and 1"
    assert remedies[1].startswith(f"`graftseg check {quote(str(tmp_path))} --fix OUT` writes a copy")


def test_masks_among_references() -> None:
    with user_error(Code.LABEL_INVALID, "a", "255"):
        check_label_values("a", np.array([0, 255]), {0: "background", 1: "liver"})
    for values, classes in (([0, 7], {1: "liver"}), ([0, 255], {1: "a", 2: "b"}), ([0, 1, 255], {1: "a"})):
        with pytest.raises(UserError, match="name that class or correct the label map"):
            check_label_values("a", np.array(values), classes)
