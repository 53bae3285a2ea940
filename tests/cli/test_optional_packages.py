"""The command line works without MONAI and all other optional packages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import yaml

from graftseg.core.software import EXTRAS

IMPORT_NAMES = {"pillow": "PIL"}
DEVELOPMENT = ("hypothesis", "ignite", "medpy", "skimage")
PROGRAM = """
import json, sys
blocked, commands = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(blocked))  # None in sys.modules makes an import fail
from graftseg.cli.app import main
for words in commands:
    sys.argv = ["graftseg", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""


@pytest.mark.slow
def test_train_and_predict_without_optional_packages(tmp_path: Path) -> None:
    scans, run, recipe = tiny.write_scans(tmp_path / "scans"), tmp_path / "run", tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree()))
    blocked = [IMPORT_NAMES.get(name, name) for packages in EXTRAS.values() for name in packages]
    commands = [
        ["--help"],
        ["check", str(scans), "--out", str(tmp_path / "check.html")],
        ["train", str(recipe), "--data", str(scans), "--out", str(run), "--device", "cpu"],
        ["predict", str(run), str(scans / "imagesTs"), "--device", "cpu"],
        ["evaluate", str(run / "predictions"), "--reference", str(scans / "labelsTs")],
        ["report", str(run)],
    ]
    request = json.dumps([[*blocked, *DEVELOPMENT], commands])
    done = subprocess.run([sys.executable, "-c", PROGRAM, request], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "monai" in blocked and (run / "report.html").is_file()
    assert len([*(run / "predictions").glob("test_*.nii.gz")]) == 2
