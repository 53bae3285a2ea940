"""The commands that open a page: what they say if they cannot."""

from pathlib import Path

import pytest
from command_line import CommandLine

from graftseg.core.errors import Code
from graftseg.reporting.viewer import launch

TRAIN = ("train", "demo-2d/bcp", "--data", "DATA", "--out", "RUN", "--live")


@pytest.mark.parametrize("words", [("view", "RUN"), ("annotate", "RUN"), TRAIN], ids=lambda words: words[0])
def test_one_sentence_says_how_to_build_the_page(
    cli: CommandLine, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "STATIC", tmp_path)
    assert "make web" in cli.fails(*words, code=Code.FILE_MISSING)


def test_folds_have_no_live_page(cli: CommandLine) -> None:
    assert "folds" in cli.fails(*TRAIN, "--set", "folds=3", code=Code.OPTION_CONFLICT)
    assert "--folds" in cli.fails(*TRAIN, "--folds", "3", code=Code.OPTION_CONFLICT)
