"""Errors that all export formats share."""

from pathlib import Path

import pytest
import tiny
from export_fakes import write_run

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder
from graftseg.core.packages import import_optional
from graftseg.core.run_folder import RunFolder
from graftseg.inference.export import KINDS, Request, export_run
from user_errors import user_error

CLASSES = ("background", "ring")
OUT = dict.fromkeys(KINDS, "out") | {"weights": "out.safetensors", "nnunet": "Dataset501_Rings"}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", tiny.tiny_recipe(3), CLASSES)


def test_an_unknown_format_is_an_error(run: RunFolder, tmp_path: Path) -> None:
    with user_error(Code.OPTION_INVALID, "export tensorrt", "onnx, weights, monai, nnunet, dicomseg"):
        export_run("tensorrt", Request(run, tmp_path / "out"))


@pytest.mark.parametrize("kind", KINDS)
def test_existing_files_are_not_overwritten(run: RunFolder, tmp_path: Path, kind: str) -> None:
    out = tmp_path / OUT[kind]
    out.write_text("mine")
    with user_error(Code.TARGET_EXISTS, out):
        export_run(kind, Request(run, out))
    assert out.read_text() == "mine"


@pytest.mark.parametrize("kind", ["onnx", "weights", "monai"])
def test_missing_or_damaged_weights_are_an_error(run: RunFolder, tmp_path: Path, kind: str) -> None:
    run.weights_file.unlink()
    with user_error(Code.WEIGHTS_MISSING, run.weights_file):
        export_run(kind, Request(run, tmp_path / OUT[kind]))
    run.weights_file.write_bytes(b"others")
    with user_error(Code.WEIGHTS_DAMAGED, run.weights_file):
        export_run(kind, Request(run, tmp_path / OUT[kind]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run"):
        export_run("weights", Request(RunFolder(tmp_path), tmp_path / "out.safetensors"))


def test_an_option_of_another_format_is_an_error(run: RunFolder, tmp_path: Path) -> None:
    with user_error(Code.OPTION_INVALID, "--data", "nnunet and dicomseg"):
        export_run("monai", Request(run, tmp_path / "out", data=tmp_path))


def test_only_dicom_segmentations_have_codes(run: RunFolder, tmp_path: Path) -> None:
    with user_error(Code.OPTION_INVALID, "--codes", "only dicomseg"):
        export_run("nnunet", Request(run, tmp_path / OUT["nnunet"], codes=tmp_path / "codes.json"))


def test_a_folder_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
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


def test_a_missing_package_is_an_error() -> None:
    with user_error(Code.PACKAGE_MISSING, "no_such_package", "pip install '.[export]'"):
        import_optional("no_such_package", "this export", extra="export")
