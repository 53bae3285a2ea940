"""Separate folders instead of one folder of data."""

import json
import sys
from pathlib import Path

import pytest
from layout_fakes import touch

import graftseg
from graftseg import api
from graftseg.cli.app import main
from graftseg.core.errors import Code
from graftseg.data.layouts import read_layout
from graftseg.data.sources import Sources, as_data
from graftseg.data.store import is_store
from user_errors import user_error


@pytest.fixture
def folders(scans: Path) -> Sources:
    """Return the separate folders of a data set in the usual layout."""
    return Sources(scans / "imagesTr", scans / "labelsTr", scans / "imagesUn", scans / "imagesTs", scans / "labelsTs")


def run(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["graftseg", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(str(ended.value.code))


def test_separate_folders_give_the_same_cases(scans: Path, folders: Sources) -> None:
    whole, plain = read_layout(scans), read_layout(folders)
    assert plain.cases == whole.cases and plain.classes == whole.classes
    assert plain.root == scans.resolve() and plain.layout == "plain"
    assert (str(folders), folders.resolve()) == (str(scans.resolve()), scans.resolve())


def test_separate_folders_give_the_same_store(scans: Path, folders: Sources, tmp_path: Path) -> None:
    whole = api.prepare(scans, tmp_path / "a", recipe="demo-2d/bcp")
    plain = api.prepare(folders, tmp_path / "b", recipe="demo-2d/bcp")
    assert plain.identity == whole.identity


def test_folders_may_be_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    touch(tmp_path, "x/a.nii", "x/b.nii", "y/z/a.nrrd", "heap/c.mha", "heap/notes.txt")
    found = read_layout(Sources(tmp_path / "x", tmp_path / "y" / "z", tmp_path / "heap"))
    assert [(case.name, case.split) for case in found.cases] == [
        ("a", "labeled"),
        ("b", "unlabeled"),
        ("c", "unlabeled"),
    ]
    assert found.root == tmp_path.resolve() and found.ignored == ("heap/notes.txt",)
    assert not caplog.messages
    same = read_layout(Sources(tmp_path / "x", tmp_path / "y" / "z", tmp_path / "x"))
    assert [case.name for case in same.cases] == ["a", "b"] and not same.problems
    assert caplog.messages == [
        f"{tmp_path / 'x'}: labeled and unlabeled images are in one folder; images without a label map are unlabeled"
    ]


def test_channels_and_names_of_classes(tmp_path: Path) -> None:
    touch(tmp_path, "x/a_0000.nii", "x/a_0001.nii", "labels/a.nii", "heap/b_0000.nii")
    (tmp_path / "dataset.json").write_text(json.dumps({"labels": {"liver": 1}, "training": ["imagesTr/none.nii"]}))
    found = read_layout(Sources(tmp_path / "x", tmp_path / "labels", tmp_path / "heap"))
    assert found.classes == {0: "background", 1: "liver"}
    assert [len(case.images) for case in found.cases] == [2, 1]
    (problem,) = found.problems
    assert problem.code is Code.CHANNELS_MISMATCH and "0000 to 0001" in problem.finding


def test_invalid_folders_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "x/a.nii", "y/b.nii", "empty/notes.txt")
    x, y = tmp_path / "x", tmp_path / "y"
    with user_error(Code.OPTION_CONFLICT, keyword="same folder"):
        Sources(x, x)
    with user_error(Code.OPTION_CONFLICT, keyword="labels without test images"):
        Sources(x, y, test_labels=y)
    with user_error(Code.FOLDER_MISSING, "none"):
        read_layout(Sources(x, y, tmp_path / "none"))
    with user_error(Code.NOT_A_FOLDER, keyword="file, not a folder"):
        read_layout(Sources(x, x / "a.nii"))
    with user_error(Code.TOO_FEW_CASES, keyword="1 labels match no image"):
        read_layout(Sources(x, y))
    with user_error(Code.NOT_A_SCAN, keyword="contains no scan"):
        read_layout(Sources(tmp_path / "empty", y))
    with user_error(Code.OPTION_CONFLICT, keyword="one folder"):
        api.prepare(Sources(x, y), tmp_path / "out", benchmark="la")


def test_paths_as_text(tmp_path: Path) -> None:
    touch(tmp_path, "x/a.nii", "y/a.nii")
    sources = graftseg.Sources(f"{tmp_path}/x", f"{tmp_path}/y")  # type: ignore[arg-type]
    assert sources == Sources(tmp_path / "x", tmp_path / "y")
    assert as_data(sources) is sources and as_data("a") == Path("a")
    assert not is_store(sources)


def options(folders: Sources) -> list[str | Path]:
    named: list[str | Path] = ["--labeled-images", folders.labeled_images, "--labels", folders.labels]
    return [*named, "--unlabeled", str(folders.unlabeled), "--test-images", str(folders.test_images)]


def test_verbs_accept_separate_folders(
    folders: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = options(folders)
    assert run(monkeypatch, "info", "--json", *data) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["layout"]) == ("scans", "plain")
    assert run(monkeypatch, "check", *data) in (0, 2)
    assert f"{facts['cases']['labeled']} labeled" in capsys.readouterr().out
    assert run(monkeypatch, "plan", *data, "--out", tmp_path / "plan.yaml") == 0
    assert run(monkeypatch, "prepare", *data, "--out", tmp_path / "store", "--recipe", "demo-2d/bcp") == 0
    few = ["--set", "stages.0.steps=1", "--set", "batches.patch=[16,16]", "--set", "network.width=2", "--device", "cpu"]
    wanted = ["train", "demo-2d/supervised", *data, "--out", tmp_path / "run", *few, "--no-baseline"]
    assert run(monkeypatch, *wanted) == 0, capsys.readouterr().err
    assert (tmp_path / "run" / "store" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("words", "where", "code"),
    [
        (["check"], "DATA", Code.OPTION_INVALID),
        (["train", "demo-2d/bcp", "--out", "x"], "DATA", Code.OPTION_INVALID),
        (["check", "--labels", "b"], "--labels", Code.OPTION_INVALID),
        (["check", "--unlabeled", "b"], "--unlabeled", Code.OPTION_INVALID),
        (["info", "a", "--labels", "b"], "--labels", Code.OPTION_CONFLICT),
        (["check", "--labeled-images", "none", "--labels", "nil"], "none", Code.FOLDER_MISSING),
    ],
)
def test_incomplete_options_are_refused(
    words: list[str], where: str, code: Code, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words) == 2
    error = capsys.readouterr().err
    assert f"{where}: " in error and f"[{code}]" in error
