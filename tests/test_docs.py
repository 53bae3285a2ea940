"""Links, commands, settings, names and code in the documentation agree with the package."""

import ast
import inspect
import re
import shlex
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from click import ClickException
from command_line import CommandLine
from pydantic import BaseModel
from typer.main import get_command

import graftseg.recipes.reading
from graftseg.cli import demo
from graftseg.cli.app import app
from graftseg.core.errors import UserError
from graftseg.core.run_folder import RunFolder
from graftseg.core.settings import Settings
from graftseg.data import phantom
from graftseg.evaluation.scores import Evaluation
from graftseg.experiments.paper import Row
from graftseg.experiments.tables import rows_of
from graftseg.methods import METHODS
from graftseg.recipes.reading import SHIPPED, shipped_recipes
from graftseg.recipes.recipe import load_recipe
from markdown_pages import DOCS, PAGES, README, ROOT, blocks, load, prose, tables
from worked_example import files

CONTRACT = ROOT / "tests" / "methods" / "test_contract.py"
CHECKS = re.findall(r"^def (test_\w+)\(name: str, dimensions: int\)", CONTRACT.read_text(), re.MULTILINE)
COMMANDS: dict[str, Any] = vars(get_command(app))["commands"]


def check_pages(problems: Callable[[Path], Iterable[str]], pages: Iterable[Path] = PAGES) -> None:
    """Fail with the problems of all pages, if there are any."""
    failures = [f"{page.relative_to(ROOT)}: {problem}" for page in pages for problem in problems(page)]
    assert not failures, "\n".join(failures)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        if not linked.exists():
            yield f"{target} does not exist"
        elif anchor and anchor not in anchors(linked):
            yield f"{target} has no such heading"


def test_links_are_valid() -> None:
    check_pages(broken_links)


def invalid_commands(page: Path) -> Iterator[str]:
    for line in "\n".join(blocks(page, "bash")).splitlines():
        words = shlex.split(line, comments=True)
        if not words or words[0] != "graftseg":
            continue
        verb, *arguments = words[1:]
        try:
            parameters = COMMANDS[verb].make_context(verb, arguments).params
            if verb == "train" and parameters["recipe"] in shipped_recipes():
                load_recipe(parameters["recipe"], parameters["overrides"] or ())
        except (KeyError, ClickException, UserError) as error:
            yield f"{line}: {error}"


def test_commands_are_valid() -> None:
    check_pages(invalid_commands)


def missing_records(page: Path) -> Iterator[str]:
    for block in blocks(page, "bash"):
        for name in shlex.split(block, comments=True):
            if name.startswith("results/") and not (ROOT / name / "record.json").is_file():
                yield f"{name} is not a record"


def test_records_in_commands_exist() -> None:
    check_pages(missing_records)


def test_comparisons_of_records_work(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS / "how-to" / "compare-runs.md"
    lines = [shlex.split(line, comments=True) for block in blocks(page, "bash") for line in block.splitlines()]
    compared = [line for line in lines if line[:2] == ["graftseg", "compare"] and line[2].startswith("results/")]
    assert compared
    monkeypatch.chdir(ROOT)
    for line in compared:
        assert f"first: {line[2]} " in CommandLine(capsys, monkeypatch).works(*line[1:])


def invalid_inline_commands(page: Path) -> Iterator[str]:
    for verb, rest in re.findall(r"`graftseg (\w[\w-]*)([^`]*)`", prose(page)):
        options = (
            {option for parameter in COMMANDS[verb].params for option in parameter.opts} if verb in COMMANDS else set()
        )
        if unknown := set(re.findall(r"--[\w-]+", rest)) - options:
            yield f"graftseg {verb} has no option {', '.join(sorted(unknown))}"
        elif verb not in COMMANDS:
            yield f"graftseg {verb} does not exist"


def test_commands_in_sentences_are_valid() -> None:
    # the page of the results quotes the key "graftseg source" of a record
    check_pages(invalid_inline_commands, [page for page in PAGES if page.parent.name != "results"])


def invalid_calls(page: Path) -> Iterator[str]:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("graftseg."):
                verb = ast.unparse(node.func).removeprefix("graftseg.")
                keywords = {str(keyword.arg): None for keyword in node.keywords}
                try:
                    assert verb in graftseg.__all__, verb
                    inspect.signature(getattr(graftseg, verb)).bind(*node.args, **keywords)
                except (AssertionError, TypeError) as error:
                    yield f"{ast.unparse(node)}: {error}"


def test_calls_in_python_match_the_functions() -> None:
    check_pages(invalid_calls)


def missing_names(page: Path) -> Iterator[str]:
    for name in re.findall(r"`(graftseg(?:\.\w+)+)`", prose(page)):
        try:
            resolve_name(name)
        except (AttributeError, ImportError) as error:
            yield f"{name}: {error}"
    for name in re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", prose(page)):
        path, _, function = name.partition("::")
        if not (ROOT / path).is_file() or (function and f"def {function}(" not in (ROOT / path).read_text()):
            yield f"{name} does not exist"


def test_names_of_functions_and_tests_exist() -> None:
    check_pages(missing_names, [README, *DOCS.rglob("*.md")])


def test_every_equation_has_its_function_and_its_test() -> None:
    page = DOCS / "reference" / "equations.md"
    rows = [row for table in tables(page).values() for row in table if re.match(r"\(\d+\)", row[0])]
    assert sorted(int(number) for row in rows for number in re.findall(r"\((\d+)\)", row[0])) == list(range(1, 11))
    for *_, function, test in rows:
        assert callable(resolve_name(function.strip("`")))
        assert test.startswith("`tests/")


def settings_classes(base: type[Settings] = Settings) -> Iterator[type[Settings]]:
    """Yield all settings classes of the package except those of methods, which are on the methods' pages."""
    for one in base.__subclasses__():
        if one.__module__.startswith("graftseg.") and not any(
            issubclass(method.Config, one) for method in METHODS.values()
        ):
            yield one
        yield from settings_classes(one)


def test_every_setting_is_described_with_its_default() -> None:
    described = tables(DOCS / "how-to" / "write-a-recipe.md")
    del described["Write a recipe"]  # the shipped recipes
    classes = {one.__name__: one for one in settings_classes()}
    assert described.keys() == classes.keys()
    for name, rows in described.items():
        fields = classes[name].model_fields
        assert [row[0].strip("`") for row in rows] == list(fields), name
        for (_, default, _), field in zip(rows, fields.values(), strict=True):
            value = field.get_default(call_default_factory=True)
            if field.is_required() or isinstance(value, BaseModel):
                assert not default
                continue
            text = default.strip("`")
            expected = list(value) if isinstance(value, tuple) else value
            assert (2 / 3 if text == "2/3" else yaml.safe_load(text)) == expected, f"{name}: {default}"


def test_recipes_in_the_guides_load(tmp_path: Path) -> None:
    guides = [block for page in sorted((DOCS / "how-to").glob("*.md")) for block in blocks(page, "yaml")]
    assert guides
    for block in guides:
        path = tmp_path / "recipe.yaml"
        path.write_text(block)
        assert load_recipe(path).name


def test_files_are_those_that_are_written(tmp_path: Path) -> None:
    described = tables(DOCS / "reference" / "files.md")
    paths = {path.name for path in vars(RunFolder(tmp_path)).values() if path != tmp_path}
    described_names = {row[0].strip("`") for name in ("A run", "Folds", "Several methods") for row in described[name]}
    assert paths | {"report.html"} <= described_names
    Evaluation((), "standard").write_csv(tmp_path / "metrics.csv")
    columns = (tmp_path / "metrics.csv").read_text().strip().split(",")
    assert [row[0].strip("`") for row in described["metrics.csv"]] == columns


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Register the method of CONTRIBUTING.md and return its name."""
    path = tmp_path / "pseudo_label.py"
    path.write_text(files()["src/graftseg/methods/pseudo_label.py"])
    monkeypatch.setitem(METHODS, "pseudo-label", load(path).PseudoLabel)
    return "pseudo-label"


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("check", CHECKS)
def test_the_example_of_a_method_keeps_the_contract(example: str, check: str, dimensions: int) -> None:
    getattr(load(CONTRACT), check)(example, dimensions)


def test_all_of_the_contract_is_checked() -> None:
    assert len(CHECKS) == CONTRACT.read_text().count("\ndef test_") > 5


def test_the_example_of_a_recipe_is_as_long_as_its_baseline(example: str, tmp_path: Path) -> None:
    block = files()[f"src/graftseg/recipes/demo-2d/{example}.yaml"]
    shutil.copy(SHIPPED / "demo-2d" / "_base.yaml", tmp_path)
    (tmp_path / "mine.yaml").write_text(block)
    recipe, baseline = load_recipe(tmp_path / "mine.yaml"), load_recipe("demo-2d/supervised")
    assert recipe.method == example
    assert sum(stage.steps for stage in recipe.stages) == sum(stage.steps for stage in baseline.stages)


def test_the_example_on_a_benchmark_gets_a_line_of_its_table(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = files()[f"src/graftseg/recipes/acdc-3/{example}.yaml"]
    (baseline,) = load_recipe("acdc-3/supervised").stages
    shutil.copytree(SHIPPED / "acdc", tmp_path / "acdc")
    (tmp_path / "acdc-3").mkdir()
    (tmp_path / "acdc-3" / f"{example}.yaml").write_text(block)
    monkeypatch.setattr(graftseg.recipes.reading, "SHIPPED", tmp_path)
    (stage,) = load_recipe(f"acdc-3/{example}").stages
    assert (stage.method, stage.steps, stage.optimizer) == (example, baseline.steps, baseline.optimizer)
    assert rows_of("acdc")[-1] == Row(example, f"acdc-3/{example}")


def read_indexed(path: Path) -> npt.NDArray[np.uint8]:
    """Return the pixels ``(H, W, 3)`` of a PNG with a palette and unfiltered rows."""
    content, place, chunks = path.read_bytes(), 8, dict[bytes, bytes]()
    while place < len(content):
        length, kind = struct.unpack(">I4s", content[place : place + 8])
        chunks[kind] = chunks.get(kind, b"") + content[place + 8 : place + 8 + length]
        place += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)[rows[:, 1:]]


def test_the_picture_is_that_of_its_script() -> None:
    script = load(DOCS / "pictures.py")
    tiles, again = script.tiles(), script.tiles()
    assert all(np.array_equal(tiles[name], again[name]) for name in tiles)
    assert script.PICTURE.stat().st_size < 150_000
    pixels, side = read_indexed(script.PICTURE), script.SIDE
    corners = {"labeled": (0, 0), "Y_out": (pixels.shape[1] - side, side + script.LETTERING)}
    for name, (left, top) in corners.items():
        # processors may round gray values differently, and the corners of a tile are rounded
        assert (pixels[top : top + side, left : left + side] == tiles[name]).mean() > 0.98


def test_the_demo_matches_its_explanation() -> None:
    page = DOCS / "explanation" / "demo.md"
    near, far = tables(page)["The phantoms"]
    for row, look in ((near, phantom.NEAR_LOOK), (far, phantom.FAR_LOOK)):
        assert [float(cell) for cell in row[1:]] == look.tolist()
    words = " ".join(page.read_text().split())
    shift = demo.APPEARANCE_SHIFT
    assert f"a shift of {shift}, so labeled scans have drifts from 0 to {1 - shift:.1f}" in words
    counts = "{labeled} labeled, {unlabeled} unlabeled, {test} for testing".format(**demo.COUNTS)
    assert counts in (DOCS / "tutorials" / "first-run.md").read_text()


def test_the_drift_of_a_phantom_is_the_one_it_is_drawn_with(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, draw_look = [], phantom._draw_look

    def note(rng: Any, label: Any, organs: Any, drift: float) -> Any:
        drawn.append(drift)
        return draw_look(rng, label, organs, drift)

    monkeypatch.setattr(phantom, "_draw_look", note)
    for index in (0, 17):
        phantom.make_phantom(4, "test", index, (16, 16), shift=0.8)
    drift_of = load(DOCS / "drift.py").drift_of
    assert drawn == [drift_of("test_000", 4, 2), drift_of("test_017", 4, 2)]


def test_the_citation_names_software_and_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= citation.keys()
    assert (citation["version"], citation["license"]) == (graftseg.__version__, "Apache-2.0")
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Bai", "Chen", "Li", "Shen", "Wang"]
    assert (paper["type"], paper["year"], paper["start"], paper["end"]) == ("conference-paper", 2023, 11514, 11524)


def test_the_changelog_has_this_version() -> None:
    assert f"## [{graftseg.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_license_is_complete() -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence and "END OF TERMS AND CONDITIONS" in licence
