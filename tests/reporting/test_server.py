import json
import re
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK
from numpy.typing import NDArray
from starlette.testclient import TestClient
from viewer_fakes import ACCESS, client_of, make_tested_run

from dicom_fakes import write_series
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder
from graftseg.data.scans import read_label, read_scan, write_label
from graftseg.reporting.viewer import server
from graftseg.reporting.viewer.case_reader import CaseReader, difference
from graftseg.reporting.viewer.collection import collect
from graftseg.reporting.viewer.server import Viewer, create_app
from graftseg.reporting.viewer.view import report_of
from graftseg.reporting.viewer.volumes import Turn
from user_errors import user_error


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tested_run(tmp_path_factory.mktemp("viewed"), request.param)


def new_client(what: Path) -> TestClient:
    shown = collect(what)
    return client_of(create_app(Viewer(shown, CaseReader(shown.cases), report_of(RunFolder(what))), ACCESS))


def volume(answer: Any) -> NDArray[Any]:
    assert answer.status_code == 200, answer.text
    return np.asarray(nibabel.Nifti1Image.from_bytes(answer.content).dataobj)


def test_a_run_shows_its_tested_cases_worst_first_and_its_training_scans(run: Path) -> None:
    session = new_client(run).get("/api/session").json()
    cases = session["cases"]
    assert (session["mode"], session["kind"], session["title"]) == ("view", "run", "run")
    assert [case["split"] for case in cases] == ["test"] * 2 + ["labeled"] * 4 + ["unlabeled"] * 5
    assert cases[0]["dice"] <= cases[1]["dice"]
    assert cases[0]["layers"] == ["reference", "prediction", "uncertainty", "difference"]
    assert 0 <= cases[0]["uncertainty"] <= 1
    assert cases[2]["layers"] == ["reference"]
    assert cases[-1]["layers"] == []
    assert session["classes"][0] == {"value": 0, "name": "background", "color": None}
    assert session["has_report"] is True


def test_volumes_are_those_of_the_files(run: Path) -> None:
    client, scans = new_client(run), run.parent / "scans"
    for entry in client.get("/api/session").json()["cases"][:2]:
        path = f"/api/cases/{entry['id']}"
        image = read_scan(scans / "imagesTs" / f"{entry['name']}_0000.nii.gz")
        turn = Turn.of(image.geometry)
        assert np.array_equal(volume(client.get(f"{path}/image.nii")), turn.to_volume(image.array[0]))
        reference = read_label(scans / "labelsTs" / f"{entry['name']}.nii.gz").array
        prediction = read_label(run / "predictions" / f"{entry['name']}.nii.gz").array
        assert np.array_equal(volume(client.get(f"{path}/reference.nii")), turn.to_volume(reference))
        assert np.array_equal(volume(client.get(f"{path}/prediction.nii")), turn.to_volume(prediction))
        differing = turn.to_volume(difference(reference, prediction))
        assert np.array_equal(volume(client.get(f"{path}/difference.nii")), differing)
        uncertainty = read_scan(run / "predictions" / f"{entry['name']}_uncertainty.nii.gz").array[0]
        assert np.allclose(volume(client.get(f"{path}/uncertainty.nii")), turn.to_volume(uncertainty), atol=1e-6)


@pytest.mark.parametrize("name", ["a.nrrd", "a.mha", "series"])
def test_all_formats_show_the_same_voxels(name: str, tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(-1000, 3000, (5, 6, 7), np.int16)
    spacing = (0.75, 0.5, 2.0)
    image = SimpleITK.GetImageFromArray(np.ascontiguousarray(array.transpose(2, 1, 0)))
    image.SetSpacing(spacing)
    image.SetOrigin((-10.0, -20.0, 5.0))
    SimpleITK.WriteImage(image, str(tmp_path / "a.nii.gz"))
    if name == "series":
        write_series(tmp_path / name, array, spacing)
    else:
        SimpleITK.WriteImage(image, str(tmp_path / name))
    expected, found = new_client(tmp_path / "a.nii.gz"), new_client(tmp_path / name)
    assert found.get("/api/cases/0").json() | {"name": "a"} == expected.get("/api/cases/0").json()
    for path in ("image.nii", "center"):
        assert found.get(f"/api/cases/0/{path}").content == expected.get(f"/api/cases/0/{path}").content
    assert np.array_equal(volume(found.get("/api/cases/0/image.nii")), array[::-1, ::-1])


def test_middle_slices_are_those_of_the_volume(run: Path) -> None:
    client = new_client(run)
    whole = volume(client.get("/api/cases/0/image.nii"))
    kind = client.get("/api/cases/0").json()["voxel_type"]
    assert whole.dtype.name == kind
    x, y, z = (size // 2 for size in whole.shape)
    slices = whole[:, :, z], whole[:, y, :], whole[x, :, :]
    answer = client.get("/api/cases/0/center")
    assert answer.content == b"".join(np.asfortranarray(plane).tobytes(order="F") for plane in slices)
    assert len(client.get("/api/cases/0/image.nii").content) == int(
        client.get("/api/cases/0/image.nii").headers["content-length"]
    )


@pytest.mark.parametrize(
    ("values", "kind"), [([0, 1, 2], "labels"), ([0, -1, 2], "scan"), ([0, 0.5, 1], "scan"), ([0, 1, 300], "scan")]
)
def test_label_maps_are_recognized_by_their_values(values: list[float], kind: str, tmp_path: Path) -> None:
    array = np.zeros((128, 128, 80), np.float32)
    array[0, 0, 0], array[1, 0, 79], array[2, 0, 79] = values
    for name in ("a.nii", "b.nii.gz"):
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), tmp_path / name)
        assert collect(tmp_path / name).kind == kind
        nibabel.save(nibabel.Nifti1Image(array[..., ::-1], np.eye(4)), tmp_path / name)
        assert collect(tmp_path / name).kind == kind


def test_a_case_is_described(run: Path) -> None:
    case = new_client(run).get("/api/cases/0").json()
    dimensions = 2 if case["is_2d"] else 3
    assert case["shape"] == [16] * dimensions + [1] * (3 - dimensions)
    assert case["channels"] == 1
    assert case["window"][0] < case["window"][1]
    assert len(case["scores"]) >= 1
    assert {"class", "dice", "hd95"} == case["scores"][0].keys()


@pytest.mark.parametrize(
    "path",
    ["/api/cases/99", "/api/cases/0/x.nii", "/api/cases/0/image.nii?channel=1", "/api/cases/0/center?channel=1", "/no"],
)
def test_unknown_addresses(run: Path, path: str) -> None:
    assert new_client(run).get(path).status_code == 404


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/..%2f..%2fserver.py", "/static//etc/passwd"])
def test_only_the_front_end_is_served_as_files(
    run: Path, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.js").write_text("page")
    monkeypatch.setattr(server, "STATIC", tmp_path)
    client = new_client(run)
    assert client.get("/static/app.js").text == "page"
    assert client.get(path).status_code == 404


def test_links_with_names_lead_to_numbers(run: Path) -> None:
    client = new_client(run)
    names = [case["name"] for case in client.get("/api/session").json()["cases"]]
    for name, target in ((names[3], "/#number=3"), ("nobody", "/")):
        answer = client.get("/", params={"case": name}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, target)


def test_the_report_is_served(run: Path) -> None:
    answer = new_client(run).get("/report")
    assert answer.status_code == 200
    assert "graftseg report" in answer.text
    assert '<a href="/?case=test_000">test_000</a>' in answer.text
    policy = answer.headers["content-security-policy"]
    assert "'self'" not in policy
    assert re.fullmatch(r"script-src 'sha256-[\w+/]{43}='", policy.split("; ")[-1])


def test_a_damaged_scan_is_one_error(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.nii.gz").write_bytes(b"\x1f\x8bdamaged")
    (tmp_path / "b.nii.gz").write_bytes((run.parent / "scans/imagesTs/test_000_0000.nii.gz").read_bytes())
    client = new_client(tmp_path)
    answer = client.get("/api/cases/0/image.nii")
    assert (answer.status_code, answer.json()["code"]) == (422, Code.SCAN_DAMAGED)
    assert client.get("/api/cases/1/image.nii").status_code == 200


def test_other_folders(run: Path, tmp_path: Path) -> None:
    scans = run.parent / "scans"
    assert collect(scans).kind == "data"
    labels = collect(run / "predictions")
    assert (labels.kind, [*labels.cases[0].maps]) == ("labels", ["prediction", "uncertainty"])
    assert collect(scans / "imagesTs" / "test_000_0000.nii.gz").kind == "scan"
    bare = collect(scans / "labelsTs")
    assert (bare.kind, bare.cases[0].layers) == ("labels", ["prediction"])
    assert int(bare.cases[0].image().array.max()) == 0
    with user_error(Code.FILE_MISSING, tmp_path / "none"):
        collect(tmp_path / "none")
    with user_error(Code.NOT_A_SCAN, run / "store"):
        collect(run / "store")


def test_a_label_map_on_another_grid_is_an_error(run: Path, tmp_path: Path) -> None:
    scan = read_label(run.parent / "scans" / "labelsTr" / "labeled_000.nii.gz")
    smaller = scan.array[:-1]
    geometry = type(scan.geometry)(smaller.shape, scan.geometry.affine)
    for name in ("imagesTr", "labelsTr"):
        (tmp_path / name).mkdir()
    image = run.parent / "scans" / "imagesTr" / "labeled_000_0000.nii.gz"
    (tmp_path / "imagesTr" / "a.nii.gz").write_bytes(image.read_bytes())
    write_label(tmp_path / "labelsTr" / "a.nii.gz", smaller, geometry)
    answer = new_client(tmp_path).get("/api/cases/0/reference.nii")
    assert (answer.status_code, answer.json()["code"]) == (422, Code.GEOMETRY_MISMATCH)


def test_names_are_json(tmp_path: Path, run: Path) -> None:
    name = '<img src=x onerror="alert(1)">'
    (tmp_path / f"{name}.nii.gz").write_bytes((run.parent / "scans/imagesTs/test_000_0000.nii.gz").read_bytes())
    answer = new_client(tmp_path).get("/api/session")
    assert json.loads(answer.text)["cases"][0]["name"] == name
    assert answer.headers["content-type"] == "application/json"


def test_differences_have_three_kinds() -> None:
    reference, prediction = np.array([0, 1, 0, 1, 2]), np.array([0, 0, 1, 2, 2])
    assert difference(reference, prediction).tolist() == [0, 1, 2, 3, 0]
