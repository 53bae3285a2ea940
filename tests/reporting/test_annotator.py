import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import nibabel
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from starlette.testclient import TestClient
from viewer_fakes import ACCESS, client_of, make_tested_run

from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder
from graftseg.data.annotation import RUN, AnnotationFolder
from graftseg.data.grid import grid_difference
from graftseg.data.layouts import read_layout
from graftseg.data.scans import read_label, read_scan
from graftseg.inference.ranking import DEFAULT_ORDER
from graftseg.reporting.viewer.annotate import data_folder, make_annotator
from graftseg.reporting.viewer.annotation_routes import LEASE_SECONDS, AnnotationRoutes, Leases
from graftseg.reporting.viewer.launch import remembered_address
from graftseg.reporting.viewer.retraining import Retraining, is_worse, next_run
from graftseg.reporting.viewer.server import Viewer, create_app
from graftseg.reporting.viewer.suggestions import Suggestions
from user_errors import user_error

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=[2, 3])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tested_run(tmp_path_factory.mktemp("annotated"), request.param)


@pytest.fixture(scope="module")
def ranked(trained: Path) -> Path:
    """A copy of the data with the ranking of a first start."""
    folder = Path(shutil.copytree(trained.parent / "scans", trained.parent / "ranked"))
    new_client(trained, folder)
    return folder


@pytest.fixture
def folder(ranked: Path, tmp_path: Path) -> Path:
    """A copy of the data, because annotation changes it."""
    return Path(shutil.copytree(ranked, tmp_path / "scans"))


def new_client(trained: Path, folder: Path, leases: Leases | None = None) -> TestClient:
    """Start a server for the annotation of a folder, and return a client of it."""
    annotations = AnnotationFolder(folder)
    with annotations.lock():
        annotator = make_annotator(RunFolder(trained), folder, annotations, CPU)
    routes = AnnotationRoutes(
        annotator, Retraining(RunFolder(trained), folder, "cpu", folder / "log", lambda run: None), leases
    )
    viewer = Viewer(annotator.collection, annotator.reader)
    return client_of(create_app(viewer, ACCESS, routes.routes(), routes.session))


def stroke(*runs: tuple[int, int, int]) -> bytes:
    return np.array(list(runs), RUN).tobytes()


def open_case(client: TestClient, tab: str = "a", number: int | None = None) -> str:
    """Open a case, by default the most useful one, for a tab. Return the address of the case."""
    number = client.get("/api/session").json()["cases"][0]["id"] if number is None else number
    assert client.post(f"/api/cases/{number}/open", json={"tab": tab}).json()["writable"] is True
    return f"/api/cases/{number}"


def read_drawing(client: TestClient, case: str) -> tuple[NDArray[np.uint8], int]:
    """Return the drawing of a case and the number of its last stroke."""
    answer = client.get(f"{case}/draft.nii")
    return np.asarray(nibabel.Nifti1Image.from_bytes(answer.content).dataobj), int(answer.headers["x-seq"])


def test_unlabeled_scans_come_first_in_the_order_of_the_ranking(trained: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained.parent / "scans", tmp_path / "scans"))
    session = new_client(trained, folder).get("/api/session").json()
    ranks = [case["rank"] for case in session["cases"]]
    assert session["mode"] == "annotate"
    assert ranks == [1, 2, 3, 4, 5, None, None, None, None]
    assert {case["split"] for case in session["cases"][:5]} == {"unlabeled"}
    assert json.loads((folder / "annotations" / "ranking.json").read_text())["cases"].keys() == {
        case["name"] for case in session["cases"][:5]
    }


def test_a_saved_ranking_in_another_order_is_not_used(trained: Path, folder: Path) -> None:
    path = folder / "annotations" / "ranking.json"
    new_client(trained, folder)
    saved = json.loads(path.read_text())
    assert saved["by"] == DEFAULT_ORDER
    changed = {name: entry | {"uncertainty": 7.0} for name, entry in saved["cases"].items()}
    for by, is_used in ((DEFAULT_ORDER, True), ("another", False)):
        path.write_text(json.dumps(saved | {"by": by, "cases": changed}))
        new_client(trained, folder)
        assert (json.loads(path.read_text())["cases"] == changed) == is_used


def test_a_drawing_starts_from_the_prediction_and_is_saved_on_the_grid_of_the_scan(trained: Path, folder: Path) -> None:
    client = new_client(trained, folder)
    case = open_case(client)
    start, seq = read_drawing(client, case)
    prediction = client.get(f"{case}/prediction.nii")
    assert np.array_equal(start, np.asarray(nibabel.Nifti1Image.from_bytes(prediction.content).dataobj))
    assert seq == 0
    voxels = start.size
    expected = start.ravel(order="F").copy()
    expected[3:8] = 1
    expected[voxels - 1] = 1 - min(1, expected[voxels - 1])
    body = stroke((3, 5, 1), (voxels - 1, 1, expected[voxels - 1]))
    assert client.post(f"{case}/strokes?tab=a&seq=1", content=body).json() == {"seq": 1}
    drawn, seq = read_drawing(client, case)
    assert (drawn.ravel(order="F").tolist(), seq) == (expected.tolist(), 1)
    answer = client.post(f"{case}/finish", json={"tab": "a", "seq": 1, "action": "accept"}).json()
    name = client.get(case).json()["name"]
    assert answer["file"] == f"labelsTr/{name}.nii.gz"
    assert answer["changed"] == np.count_nonzero(expected != start.ravel(order="F"))
    image = read_scan(folder / "imagesUn" / f"{name}_0000.nii.gz")
    saved = read_label(folder / "labelsTr" / f"{name}.nii.gz")
    assert grid_difference(image.geometry, saved.geometry) is None
    turned = client.get(f"{case}/image.nii")
    assert np.asarray(nibabel.Nifti1Image.from_bytes(turned.content).dataobj).shape == drawn.shape
    assert np.count_nonzero(saved.array) == np.count_nonzero(expected)
    assert {case.name for case in read_layout(folder).of("labeled")} >= {name}
    log = [json.loads(line) for line in (folder / "annotations" / "log.jsonl").read_text().splitlines()]
    assert [(line["case"], line["action"], line["changed_voxels"]) for line in log] == [
        (name, "accept", answer["changed"])
    ]
    assert not (folder / "annotations" / "drafts" / name).exists()
    states = {entry["name"]: entry["state"] for entry in client.get("/api/session").json()["cases"]}
    assert states[name] == "accepted"


def test_drafts_survive_a_restart_of_the_server(trained: Path, folder: Path) -> None:
    client = new_client(trained, folder)
    case = open_case(client)
    client.post(f"{case}/strokes?tab=a&seq=1", content=stroke((0, 4, 1)))
    before, _ = read_drawing(client, case)
    again = new_client(trained, folder)
    after, seq = read_drawing(again, case)
    assert np.array_equal(before, after)
    assert seq == 1
    assert again.get("/api/session").json()["cases"][0]["has_draft"] is True


def test_a_second_tab_cannot_change_a_case(trained: Path, folder: Path) -> None:
    now = [0.0]
    client = new_client(trained, folder, Leases(lambda: now[0]))
    case = open_case(client)
    assert client.post(f"{case}/open", json={"tab": "b"}).json()["writable"] is False
    answer = client.post(f"{case}/strokes?tab=b&seq=1", content=stroke((0, 1, 1)))
    assert (answer.status_code, answer.json()["code"]) == (409, Code.FOLDER_LOCKED)
    now[0] = LEASE_SECONDS + 1
    assert client.post(f"{case}/open", json={"tab": "b"}).json()["writable"] is True
    assert client.post(f"{case}/open", json={"tab": "a"}).json()["writable"] is False


@pytest.mark.parametrize("suffix", [".nrrd", ".mha"])
def test_a_label_map_that_cannot_be_replaced_is_refused_before_drawing(
    trained: Path, folder: Path, suffix: str
) -> None:
    name = "labeled_000"
    old = folder / "labelsTr" / f"{name}.nii.gz"
    old.rename(folder / "labelsTr" / f"{name}{suffix}")  # only the name matters
    client = new_client(trained, folder)
    number = next(case["id"] for case in client.get("/api/session").json()["cases"] if case["name"] == name)
    answer = client.post(f"/api/cases/{number}/open", json={"tab": "a"})
    assert (answer.status_code, answer.json()["code"]) == (422, Code.SCAN_UNSUPPORTED)
    draft = folder / "annotations" / "drafts" / name
    assert not draft.exists()
    draft.mkdir(parents=True)
    (draft / "start.nii.gz").touch()
    assert new_client(trained, folder).get(f"/api/cases/{number}/image.nii").status_code == 200


def test_the_log_counts_the_time_for_which_a_tab_could_draw(trained: Path, folder: Path) -> None:
    now = [0.0]
    client = new_client(trained, folder, Leases(lambda: now[0]))

    def wait(seconds: float) -> None:
        """Renew the lease every second."""
        for _ in range(int(seconds)):
            now[0] += 1
            client.post(f"{case}/open", json={"tab": "a"})

    def finish(action: str) -> float:
        client.post(f"{case}/finish", json={"tab": "a", "seq": 0, "action": action})
        seconds: float = json.loads((folder / "annotations" / "log.jsonl").read_text().splitlines()[-1])["seconds"]
        return seconds

    case = open_case(client)
    wait(4)
    now[0] += LEASE_SECONDS + 100  # another case is open
    wait(3)
    now[0] += 0.5
    assert finish("skip") == 4 + 2 + 0.5
    now[0] += 100
    wait(5)
    client = new_client(trained, folder, Leases(lambda: now[0]))
    wait(3)
    assert finish("accept") == 4 + 2


def test_a_lost_answer_does_not_double_a_stroke(trained: Path, folder: Path) -> None:
    client = new_client(trained, folder)
    case = open_case(client)
    for _ in range(2):
        assert client.post(f"{case}/strokes?tab=a&seq=1", content=stroke((0, 1, 1))).json() == {"seq": 1}
    assert client.post(f"{case}/strokes?tab=a&seq=3", content=stroke((0, 1, 1))).status_code == 409
    finish = {"tab": "a", "seq": 0, "action": "accept"}
    assert client.post(f"{case}/finish", json=finish).status_code == 409


def test_skipped_and_rejected_cases(trained: Path, folder: Path) -> None:
    client = new_client(trained, folder)
    first, second, third = (case["id"] for case in client.get("/api/session").json()["cases"][:3])
    open_case(client, number=first)
    skipped = client.post(f"/api/cases/{first}/finish", json={"tab": "a", "seq": 0, "action": "skip"}).json()
    assert (skipped["file"], skipped["next"]) == (None, second)
    open_case(client, number=second)
    rejected = client.post(f"/api/cases/{second}/finish", json={"tab": "a", "seq": 0, "action": "reject"}).json()
    assert rejected["next"] == third
    states = [case["state"] for case in new_client(trained, folder).get("/api/session").json()["cases"]][:3]
    assert states == ["skipped", "rejected", "open"]
    assert not list((folder / "labelsTr").glob("unlabeled*"))


def test_the_previous_version_of_a_label_map_is_kept(trained: Path, folder: Path) -> None:
    client = new_client(trained, folder)
    number = client.get("/api/session").json()["cases"][-1]["id"]
    name = client.get(f"/api/cases/{number}").json()["name"]
    before = (folder / "labelsTr" / f"{name}.nii.gz").read_bytes()
    case = open_case(client, number=number)
    client.post(f"{case}/strokes?tab=a&seq=1", content=stroke((0, 16, 1)))
    client.post(f"{case}/finish", json={"tab": "a", "seq": 1, "action": "accept"})
    backups = list((folder / "annotations" / "previous" / name).iterdir())
    assert [backup.read_bytes() for backup in backups] == [before]
    assert (folder / "labelsTr" / f"{name}.nii.gz").read_bytes() != before


def test_an_interrupted_save_is_finished_later(trained: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = new_client(trained, folder)
    case = open_case(client)

    def killed(*arguments: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(AnnotationFolder, "log", killed)
        client.post(f"{case}/finish", json={"tab": "a", "seq": 0, "action": "accept"})
    name = client.get(case).json()["name"]
    assert (folder / "annotations" / "drafts" / name).is_dir()
    states = {
        entry["name"]: entry["state"] for entry in new_client(trained, folder).get("/api/session").json()["cases"]
    }
    assert states[name] == "accepted"
    assert not (folder / "annotations" / "drafts" / name).exists()


def test_reset_goes_back_to_the_prediction(trained: Path, folder: Path) -> None:
    client = new_client(trained, folder)
    case = open_case(client)
    start, _ = read_drawing(client, case)
    client.post(f"{case}/strokes?tab=a&seq=1", content=stroke((0, start.size, 1)))
    assert client.post(f"{case}/reset", json={"tab": "a", "seq": 1}).json() == {"seq": 2}
    assert np.array_equal(read_drawing(client, case)[0], start)


def test_starting_over_uses_the_current_network(trained: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    annotations = AnnotationFolder(folder)
    with annotations.lock():
        annotator = make_annotator(RunFolder(trained), folder, annotations, CPU)
    number = annotator.order()[0]
    draft = annotator.draft(number)
    draft.add(1, np.array([(0, draft.start.size, 1)], RUN))
    assert annotator.restart(number) == 2
    assert np.array_equal(draft.drawing, draft.start)
    assert annotator.draft(number) is draft
    other = np.full_like(draft.labels, 2)
    monkeypatch.setattr(Suggestions, "model", "another network")
    monkeypatch.setattr(Suggestions, "maps", lambda *_: SimpleNamespace(labels=other))
    assert annotator.restart(number) == 0
    assert np.array_equal(annotator.draft(number).labels, other)
    assert annotator.draft(number).about["model"] == "another network"


BAD_REQUESTS = [
    ("open", b"{}", 400),
    ("open", b'{"tab": ""}', 400),
    ("open", b"x" * 2000, 413),
    ("finish", b'{"tab": "a", "seq": 0, "action": "delete"}', 400),
    ("strokes?tab=a&seq=1", b"123", 422),
    ("strokes?tab=a&seq=1", stroke((2**31, 1, 1)), 422),
    ("strokes?tab=a&seq=1", stroke((0, 1, 200)), 422),
    ("strokes?tab=a&seq=1", b"x" * 2**20, 413),
    ("strokes?tab=a&seq=-1", stroke((0, 1, 1)), 400),
    ("strokes?seq=1", stroke((0, 1, 1)), 409),
]


def test_bad_requests(trained: Path, folder: Path) -> None:
    client = new_client(trained, folder)
    case = open_case(client)
    statuses = [client.post(f"{case}/{path}", content=body).status_code for path, body, _ in BAD_REQUESTS]
    assert statuses == [status for _, _, status in BAD_REQUESTS]
    assert read_drawing(client, case)[1] == 0


def test_one_program_annotates_a_folder(folder: Path) -> None:
    with (
        AnnotationFolder(folder).lock(),
        user_error(Code.FOLDER_LOCKED, folder / "annotations"),
        AnnotationFolder(folder).lock(),
    ):
        pytest.fail("two programs have the lock")


def test_the_folder_of_data_comes_from_the_run(trained: Path) -> None:
    assert data_folder(RunFolder(trained)) == (trained.parent / "scans").resolve()


def test_a_restarted_server_has_the_same_address(tmp_path: Path) -> None:
    first, bound = remembered_address(tmp_path / "server.json", 0)
    bound.close()
    second, bound = remembered_address(tmp_path / "server.json", 0)
    assert (first.port, first.token) == (second.port, second.token)
    third, free = remembered_address(tmp_path / "server.json", 0)
    assert third.port != second.port
    assert third.token != second.token
    assert (tmp_path / "server.json").stat().st_mode & 0o777 == 0o600
    bound.close()
    free.close()


def test_continued_runs_are_numbered(tmp_path: Path) -> None:
    assert next_run(tmp_path / "run") == tmp_path / "run-2"
    (tmp_path / "run-2").mkdir()
    assert next_run(tmp_path / "run") == tmp_path / "run-3"
    assert next_run(tmp_path / "run-2") == tmp_path / "run-3"


@pytest.mark.parametrize(
    ("gain", "expected"),
    [(None, False), ({"before": 80.0, "after": None}, False), ({"before": 80.0, "after": 79.9}, True)],
)
def test_a_worse_network_is_not_used(tmp_path: Path, gain: dict[str, float] | None, expected: bool) -> None:
    run = RunFolder(tmp_path)
    run.update_manifest({"status": "finished"} | ({} if gain is None else {"gain": gain}))
    assert is_worse(run) is expected
