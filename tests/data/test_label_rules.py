"""Plan and prepare refuse invalid labels with the same error."""

import json
from pathlib import Path
from shlex import quote

import numpy as np
import pytest
from check_fakes import geometry, image, label, put

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset
from graftseg.data.labels import check_label_values, checked_values, refuse_class_list
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import identity_settings, prepare
from graftseg.data.scans import read_label
from graftseg.data.sources import Sources
from graftseg.planning.plans import make_plan
from user_errors import user_error

ONE = {"background": 0, "liver": 1}
FIXED = "my scans' --fix OUT`"


def scans(root: Path, *values: int, classes: dict[str, int] | None = None, origin: float = 0.0) -> Path:
    for number in range(2):
        put(root, f"imagesTr/l{number}", image(number))
        put(root, f"labelsTr/l{number}", label(*values), geometry(origin=origin))
    put(root, "imagesUn/u", image(7))
    if classes:
        (root / "dataset.json").write_text(json.dumps({"labels": classes}))
    return root


def refusals(data: Path | Sources, out: Path) -> list[str]:
    """Return the errors of plan and prepare."""
    said = []
    with pytest.raises(UserError) as planned:
        api.plan(data, out / "plan.yaml", device="cuda")
    said.append(str(planned.value))
    with pytest.raises(UserError) as prepared:
        prepare(read_layout(data), out / "store", identity_settings(3))
    said.append(str(prepared.value))
    assert not (out / "plan.yaml").exists() and not (out / "store" / "manifest.json").exists()
    return said


@pytest.mark.parametrize(
    ("values", "classes", "where", "keyword"),
    [
        ((255, 255), None, "l0.nii.gz", FIXED),
        ((255, 255), ONE, "l0.nii.gz", FIXED),
        ((1, 255), None, "l0.nii.gz", "255 is above 254"),
        ((1, 3), {**ONE, "tumour": 2}, "l0.nii.gz", "value 3"),
        ((1, 3), {**ONE, "tumour": 3}, "dataset.json", "2 is missing"),
        ((1,), {str(value): value for value in range(256)}, "dataset.json", "up to 255"),
    ],
)
def test_plan_and_prepare_refuse_the_same_labels(
    tmp_path: Path, values: tuple[int, ...], classes: dict[str, int] | None, where: str, keyword: str
) -> None:
    data = scans(tmp_path / "my scans", *values, classes=classes)
    planned, prepared = refusals(data, tmp_path)
    assert planned == prepared
    with user_error(Code.LABEL_INVALID, where, keyword):
        make_plan(read_layout(data), device="cuda", timed=False)


def test_labels_on_another_grid(tmp_path: Path) -> None:
    data = scans(tmp_path / "scans", 1, origin=30.0)
    planned, prepared = refusals(data, tmp_path)
    assert planned == prepared and "l0.nii.gz: image and label lie on different grids" in planned


def test_a_fixed_copy_is_offered_only_for_folders_that_check_accepts(tmp_path: Path) -> None:
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
        with pytest.raises(UserError, match="correct the label map"):
            check_label_values("a", np.array(values), classes)


def test_a_missing_dataset_json_is_not_blamed(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path, "msd", (), {0: "background", 2: "liver"})
    with user_error(Code.LABEL_INVALID, tmp_path, "1 is missing") as caught:
        refuse_class_list(dataset)
    assert caught.value.where == str(tmp_path)


@pytest.mark.parametrize("layout", ["msd", "plain"])
def test_other_grids_refer_to_the_check(tmp_path: Path, layout: str) -> None:
    put(tmp_path, "labelsTr/l0", label(1))
    case = Case("l0", (tmp_path / "imagesTr/l0.nii.gz",), tmp_path / "labelsTr/l0.nii.gz", "labeled")
    dataset = Dataset(tmp_path, layout, (case,), {})
    with pytest.raises(UserError) as caught:
        checked_values(dataset, case, geometry(origin=5.0), read_label(tmp_path / "labelsTr/l0.nii.gz"))
    assert caught.value.code is Code.GEOMETRY_MISMATCH and "`graftseg check" in caught.value.remedy
    assert ("--fix" in caught.value.remedy) == (layout == "msd")
