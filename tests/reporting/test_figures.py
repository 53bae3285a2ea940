"""The figures of the paper: exact numbers, equal files for equal input, and errors by code."""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command_line import CommandLine

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import Store
from graftseg.inference.model import build_network, load_network
from graftseg.inference.resampling import stretched
from graftseg.methods import METHODS
from graftseg.networks.encoder_decoder import EncoderDecoder
from graftseg.recipes.recipe import parse_recipe
from graftseg.reporting.figures import density, masks, methods
from graftseg.reporting.figures.density import panel_of, principal_component
from graftseg.reporting.figures.dice_over_time import Scores, _draw_panel, read_scores
from graftseg.reporting.figures.drawing import canvas, run_names, shortened
from graftseg.reporting.figures.features import RunFeatures, feature_network, features_at, sample_features
from graftseg.reporting.figures.figure import FigureName
from graftseg.reporting.figures.methods import RunScores, chosen_cases
from graftseg.reporting.results import Results
from user_errors import user_error

CPU = torch.device("cpu")
SIGNATURES = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


def tree(dimensions: int, **loop: Any) -> dict[str, Any]:
    recipe = tiny.recipe_tree(dimensions)
    recipe["batches"]["labeled_cases"] = 2
    recipe["loop"] |= {"training_dice_every": 4, **loop}
    return recipe


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def tested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two tested runs on phantoms, of which two labels are hidden."""
    folder, dimensions = tmp_path_factory.mktemp(f"runs-{request.param}"), request.param
    scans = tiny.write_scans(folder / "scans", dimensions)
    store = prepare(read_layout(scans), folder / "store", tiny.tiny_recipe(dimensions).data)
    for name in ("bcp", "other"):
        recipe = parse_recipe(tree(dimensions) | {"seed": 1 if name == "bcp" else 2}, "tiny")
        api.train(recipe, store.path, folder / name, device="cpu")
        api.predict(folder / name, scans / "imagesTs", device="cpu")
        api.evaluate(folder / name / "predictions", scans / "labelsTs")
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw small surfaces, and densities of few voxels."""
    monkeypatch.setattr(density, "VOXELS", 60)
    monkeypatch.setattr(methods, "SURFACE_SIDE", 40)
    monkeypatch.setattr(masks, "SIDE", 20)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("density", "svg"), ("dice-over-time", "png"), ("methods", "pdf"), ("masks", "svg")],
)
def test_equal_input_gives_equal_files(tested: Path, tmp_path: Path, name: FigureName, suffix: str) -> None:
    files = [tmp_path / f"{number}.{suffix}" for number in range(2)]
    for file in files:
        drawn = api.figure(name, tested / "bcp", tested / "other", out=file, device="cpu")
        assert drawn.path == file and drawn.caption and drawn.rows
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(SIGNATURES[suffix]) and first == second


def test_figures_on_the_command_line(tested: Path, tmp_path: Path, cli: CommandLine) -> None:
    words = ("figure", "masks", tested / "bcp", "--out", tmp_path / "masks.svg", "--seed", 3)
    assert f"{tmp_path / 'masks.svg'}\n" in cli.works(*words)
    out = cli.works("figure", "methods", tested / "bcp", "--out", tmp_path / "m.png", "--case", "test_001")
    assert "test_001" in out and "test_000" not in out


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["--png"], "masks.png"),
        (["--pdf", "--out", "a"], "a.pdf"),
        (["--svg", "--out", "a.b"], "a.b.svg"),
        (["--svg", "--out", "a.svg"], "a.svg"),
    ],
)
def test_options_choose_the_format(
    tested: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, words: list[str], written: str
) -> None:
    monkeypatch.chdir(tmp_path)
    cli.works("figure", "masks", tested / "bcp", *words)
    assert [path.name for path in tmp_path.iterdir()] == [written]
    assert (tmp_path / written).read_bytes().startswith(SIGNATURES[written.rpartition(".")[2]])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], Code.OPTION_INVALID),
        (["--png", "--svg"], Code.OPTION_CONFLICT),
        (["--png", "--out", "a.svg"], Code.OPTION_CONFLICT),
    ],
)
def test_one_format_is_needed(tested: Path, cli: CommandLine, words: list[str], code: Code) -> None:
    cli.fails("figure", "masks", tested / "bcp", *words, code=code)


def test_masks_show_the_mask_of_the_run(tested: Path, tmp_path: Path) -> None:
    run = tmp_path / "contact"
    run.mkdir()
    shutil.copy(tested / "bcp" / "run.json", run)
    _, recipe = RunFolder(tested / "bcp").recipe_file.read_text().split("\n", 1)  # the first line is a checksum
    assert "name: box" in recipe
    (run / "recipe.yaml").write_text(recipe.replace("name: box", "name: contact"))
    rows = api.figure("masks", tested / "bcp", run, out=tmp_path / "masks.svg").rows
    used = [(row[0], row[1]) for row in rows if row[2] == "yes"]
    assert used == [("bcp", "box"), ("contact", "contact")]
    # a box of floor(16 * 2 / 3) = 10 of 16 voxels along each axis
    axes = rows[0][3].count("x") + 1
    (share,) = [row[5] for row in rows if row[:2] == ("bcp", "box")]
    assert float(share) == pytest.approx(100 * (10 / 16) ** axes, abs=0.05)


def test_a_run_without_masks_is_refused(store: Store, tmp_path: Path) -> None:
    stages = [{"method": "supervised", "steps": 2}]
    api.train(tiny.tiny_recipe(stages=stages), store.path, tmp_path / "run", device="cpu")
    with user_error(Code.RECIPE_MISMATCH, tmp_path / "run", "mask"):
        api.figure("masks", tmp_path / "run", out=tmp_path / "masks.svg")


def test_the_used_mask_is_that_of_the_last_stage_that_pastes() -> None:
    nothing: list[dict[str, Any]] = [
        {"method": "bcp-pretrain", "settings": {"mixing": False}},
        {"method": "bcp", "settings": {"direction": "none"}},
        {"method": "graft", "settings": {"direction": "none"}},
        {"method": "fg-cutmix"},
    ]
    pretraining = {"method": "bcp-pretrain", "settings": {"mask": {"name": "contact"}, "beta": 0.5}}
    for stage in nothing:
        with user_error(Code.RECIPE_MISMATCH, Path("run"), "mask"):
            masks._used_mask(Path("run"), tiny.tiny_recipe(stages=[stage | {"steps": 1}]))
        recipe = tiny.tiny_recipe(stages=[pretraining | {"steps": 1}, stage | {"steps": 1}])
        used, beta = masks._used_mask(Path("run"), recipe)
        assert (used.name, beta) == ("contact", 0.5), stage


def test_the_head_turns_the_features_into_logits() -> None:
    for dimensions in (2, 3):
        for name in METHODS:
            method = tiny.tiny_method(name, dimensions).eval()
            images = tiny.tiny_batch(dimensions, side=16 if dimensions == 2 else 8).labeled.images
            with torch.inference_mode():
                features, logits = feature_network(method.student)(images), method.student(images)
            assert features.shape[0] == len(images) and features.shape[2:] == images.shape[2:], name
            head = method.student.get_submodule("head")
            last = getattr(head, "logits", head)
            with torch.inference_mode():
                expected = last(features)
            # DTC adds a constant channel for two classes
            assert torch.equal(logits[:, -expected.shape[1] :], expected), name
            assert isinstance(method.student, EncoderDecoder) and not last._forward_pre_hooks, name


def test_features_are_those_of_the_sampled_voxels(tested: Path) -> None:
    """A scan of the size of the patch has one window, so its features are those of one forward pass."""
    network = load_network(RunFolder(tested / "bcp"))
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(1, *network.patch, generator=generator)
    labels = torch.randint(4, network.patch, generator=generator, dtype=torch.uint8)
    with torch.inference_mode():
        whole = feature_network(network.method.student)(image[None])[0].reshape(2, -1)
    sampled = features_at(network, image, labels, 10**9, np.random.default_rng(0))
    for label, features in sampled.items():
        expected = whole[:, (labels == label).reshape(-1)].T.numpy()
        assert np.allclose(features, expected, atol=1e-6), label
    few = features_at(network, image, labels, 7, np.random.default_rng(0))
    assert [len(features) for features in few.values()] == [7, 7, 7]


@pytest.mark.parametrize("fit", ["crop", "stretch"])
def test_features_of_slices_of_a_volume(fit: str) -> None:
    """A 2-D network gets the slices of a volume, cropped or stretched to the patch."""
    batches = {"patch": [16, 16], "labeled": 2, "unlabeled": 2, "fit": fit}
    recipe, generator = tiny.tiny_recipe(batches=batches), torch.Generator().manual_seed(0)
    network = build_network(recipe, {"classes": tuple("abcd"), "channels": 1}, CPU)
    shape = (16, 16, 5) if fit == "crop" else (12, 20, 5)
    image = torch.randn(1, *shape, generator=generator)
    labels = torch.randint(4, shape, generator=generator, dtype=torch.uint8)
    slices, maps = image.movedim(-1, 0), labels.movedim(-1, 0)
    if fit == "stretch":
        slices, maps = stretched(slices, (16, 16)), stretched(maps, (16, 16))
    with torch.inference_mode():
        whole = feature_network(network.method.student)(slices).movedim(1, 0)
    for label, features in features_at(network, image, labels, 10**9, np.random.default_rng(0)).items():
        assert np.allclose(features, whole[:, maps == label].T.numpy(), atol=1e-6), label


def test_sampling_depends_on_the_seed_alone(tested: Path) -> None:
    run = RunFolder(tested / "bcp")
    first, second, third = (sample_features(run, CPU, voxels=8, seed=seed, hidden_labels=True) for seed in (0, 0, 1))
    assert first.scans == (2, 2)
    for label in first.labeled:
        assert np.array_equal(first.unlabeled[label], second.unlabeled[label])
        assert not np.array_equal(first.unlabeled[label], third.unlabeled[label])


def test_density_groups_by_predictions_unless_hidden_labels_are_requested(tested: Path, tmp_path: Path) -> None:
    out = tmp_path / "density.svg"
    assert "predictions of the run" in api.figure("density", tested / "bcp", out=out, device="cpu").caption
    hidden = api.figure("density", tested / "bcp", out=out, device="cpu", hidden_labels=True)
    assert "labels that training did not use" in hidden.caption
    assert all(0 <= float(row[4]) <= 1 for row in hidden.rows if row[4])


def test_equal_features_overlap_completely() -> None:
    values = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    same = panel_of(RunFeatures(("background", "a"), {1: values}, {1: values}, (1, 1)), 1)
    moved = panel_of(RunFeatures(("background", "a"), {1: values}, {1: values + 100}, (1, 1)), 1)
    assert same.overlap == pytest.approx(1.0, abs=1e-6) and moved.overlap == pytest.approx(0.0, abs=1e-6)
    assert same.labeled.std(ddof=1) == pytest.approx(1.0) and same.labeled.mean() == pytest.approx(0.0, abs=1e-6)
    few = panel_of(RunFeatures(("background", "a"), {1: values}, {1: values[:3]}, (1, 1)), 1)
    assert few.overlap is None


def test_the_principal_component_is_the_direction_of_the_largest_variance() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1000, 1)) * np.array([[3.0, -4.0]]) + 0.01 * rng.normal(size=(1000, 2))
    assert principal_component(values) == pytest.approx([-0.6, 0.8], abs=1e-3)


def test_hidden_labels_must_exist(store: Store, tmp_path: Path) -> None:
    api.train(tiny.tiny_recipe(), store.path, tmp_path / "run", device="cpu")
    with user_error(Code.TOO_FEW_CASES, store.path, "label"):
        api.figure("density", tmp_path / "run", out=tmp_path / "d.svg", hidden_labels=True, device="cpu")
    with user_error(Code.RUN_MISMATCH, tmp_path / "run", "training_dice_every"):
        api.figure("dice-over-time", tmp_path / "run", out=tmp_path / "d.svg")
    with user_error(Code.NOT_TESTED, tmp_path / "run", "graftseg test"):
        api.figure("methods", tmp_path / "run", out=tmp_path / "d.svg")


def test_dice_over_time_shows_the_scores_of_the_log(tested: Path, tmp_path: Path) -> None:
    scores = read_scores(RunFolder(tested / "bcp"))
    assert scores.steps == (4, 8, 9)
    rows = api.figure("dice-over-time", tested / "bcp", tested / "other", out=tmp_path / "d.svg").rows
    assert [row[:2] for row in rows] == [(name, str(step)) for name in ("bcp", "other") for step in scores.steps]
    for row, labeled, unlabeled in zip(rows[:3], scores.labeled, scores.unlabeled, strict=True):
        gap = f"{100 * (labeled - unlabeled):.1f}".replace("-", "−")
        assert row[2:] == (f"{100 * labeled:.1f}", f"{100 * unlabeled:.1f}", gap)


def test_a_single_score_is_drawn_as_a_point() -> None:
    from matplotlib.figure import Figure

    for steps, marker in (((5,), "o"), ((5, 9), "")):
        axes = Figure().subplots()
        _draw_panel(axes, "run", Scores(steps, (0.9,) * len(steps), (0.5,) * len(steps)))
        assert [line.get_marker() for line in axes.lines] == [marker, marker]


def test_methods_choose_the_worst_the_median_and_the_best_case() -> None:
    def run(name: str, dice: dict[str, float]) -> RunScores:
        return RunScores(name, Path(name), Results(Path(name), None, None), dice)  # type: ignore[arg-type]

    first = run("first", {"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.6, "only": 0.0})
    second = run("second", {"a": 0.9, "b": 0.9, "c": 0.1, "d": 0.6})
    # the means are a 0.5, b 0.9, c 0.3, d 0.6
    assert chosen_cases([first, second]) == {"c": "worst", "a": "median", "b": "best"}
    with user_error(Code.NOT_COMPARABLE, "third"):
        chosen_cases([first, run("third", {"x": 1.0})])


def test_unknown_cases_and_views_are_refused(tested: Path, tmp_path: Path) -> None:
    with user_error(Code.UNKNOWN_NAME, "--case nobody", "test_000"):
        api.figure("methods", tested / "bcp", out=tmp_path / "m.png", cases=["nobody"])
    if len(load_network(RunFolder(tested / "bcp")).patch) == 2:
        with user_error(Code.OPTION_INVALID, "--view surfaces", "2-D"):
            api.figure("methods", tested / "bcp", out=tmp_path / "m.png", view="surfaces")


def test_bad_targets_and_options_are_refused(tmp_path: Path, cli: CommandLine) -> None:
    with user_error(Code.OPTION_INVALID, "figure.jpg", ".svg"):
        api.figure("masks", tmp_path, out=tmp_path / "figure.jpg")
    with user_error(Code.NOT_A_RUN, tmp_path):
        api.figure("masks", tmp_path, out=tmp_path / "figure.svg")
    with user_error(Code.OPTION_INVALID, "runs"):
        api.figure("masks", out=tmp_path / "figure.svg")
    with user_error(Code.OPTION_CONFLICT, "--case", "masks"):
        api.figure("masks", tmp_path, out=tmp_path / "figure.svg", cases=["a"])
    with user_error(Code.UNKNOWN_NAME, "histogram"):
        api.figure("histogram", tmp_path, out=tmp_path / "figure.svg")  # type: ignore[arg-type]
    cli.fails("figure", "density", tmp_path, "--out", tmp_path / "a.svg", "--view", "both", code=Code.OPTION_CONFLICT)


def test_a_missing_matplotlib_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with user_error(Code.PACKAGE_MISSING, "matplotlib", "[figures]"):
        api.figure("masks", tmp_path, out=tmp_path / "figure.svg")


def test_strange_names_are_only_text(tmp_path: Path) -> None:
    """A dollar sign starts no formula, and user settings of matplotlib are kept and have no effect."""
    import matplotlib

    matplotlib.rcParams["font.size"] = 31.0
    try:
        with canvas(tmp_path / "a.svg", 1.0, 1.0) as figure:
            assert matplotlib.rcParams["font.size"] == 8
            figure.text(0.1, 0.5, shortened("a $\\frac{$ b\n心" * 3))
        assert matplotlib.rcParams["font.size"] == 31.0
    finally:
        matplotlib.rcdefaults()
    assert shortened("x" * 30, 11) == "xxxxx…xxxxx"


def test_runs_have_the_shortest_different_names() -> None:
    assert run_names([Path("/a/bcp"), Path("/a/other")]) == ["bcp", "other"]
    assert run_names([Path("/a/bcp/baseline"), Path("/a/mt/baseline")]) == ["bcp/baseline", "mt/baseline"]
    assert run_names([Path("/a"), Path("/a")]) == ["/a", "/a"]
