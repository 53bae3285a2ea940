"""What every kind of export refuses, and that nothing is left behind."""

from pathlib import Path

import pytest
import tiny
from export_fakes import write_run

from graftseg.core.errors import UserError
from graftseg.core.run_folder import RunFolder
from graftseg.inference.export import KINDS, Request, export_run
from graftseg.inference.export.request import atomic_folder, needed

CLASSES = ("background", "ring")
OUT = dict.fromkeys(KINDS, "out") | {"weights": "out.safetensors", "nnunet": "Dataset501_Rings"}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", tiny.tiny_recipe(3), CLASSES)


def refused(kind: str, request: Request) -> str:
    with pytest.raises(UserError) as error:
        export_run(kind, request)
    return str(error.value)


def test_an_unknown_kind_lists_those_that_there_are(run: RunFolder, tmp_path: Path) -> None:
    sentence = refused("tensorrt", Request(run, tmp_path / "out"))
    assert sentence == "export tensorrt: unknown; choose one of onnx, weights, monai, nnunet, dicomseg."


@pytest.mark.parametrize("kind", KINDS)
def test_what_exists_is_not_touched(run: RunFolder, tmp_path: Path, kind: str) -> None:
    out = tmp_path / OUT[kind]
    out.write_text("mine")
    assert "exists already" in refused(kind, Request(run, out))
    assert out.read_text() == "mine"


@pytest.mark.parametrize("kind", ["onnx", "weights", "monai"])
def test_a_run_without_weights_is_refused(run: RunFolder, tmp_path: Path, kind: str) -> None:
    run.weights_file.unlink()
    assert "the trained network of the run is missing" in refused(kind, Request(run, tmp_path / OUT[kind]))
    run.weights_file.write_bytes(b"others")
    assert "not those that the run saved" in refused(kind, Request(run, tmp_path / OUT[kind]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    assert "not a run folder" in refused("weights", Request(RunFolder(tmp_path), tmp_path / "out.safetensors"))


def test_an_option_of_another_kind_is_refused(run: RunFolder, tmp_path: Path) -> None:
    sentence = refused("monai", Request(run, tmp_path / "out", data=tmp_path))
    assert sentence == "--data: export monai has no use for it; leave it out, it is for nnunet and dicomseg."


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with pytest.raises(ZeroDivisionError), atomic_folder(target) as partial:
        (partial / "half").write_text("half")
        raise ZeroDivisionError
    assert list(target.parent.iterdir()) == []
    with atomic_folder(target) as partial:
        (partial / "whole").write_text("whole")
    assert [path.name for path in target.parent.rglob("*")] == ["out", "whole"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"), atomic_folder(tmp_path / "file" / "out"):
        pass


def test_a_missing_package_is_named_with_its_command() -> None:
    with pytest.raises(UserError) as error:
        needed("no_such_package", "export")
    assert str(error.value).endswith("it is missing; run pip install '.[export]' in the folder of graftseg.")
