"""Cross-validation with a baseline on two ranks, which predict the held-out cases together."""

import json
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tiny import recipe_tree

from graftseg import api
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.evaluation.scores import read_csv
from graftseg.inference.predict import PlannedPrediction
from graftseg.recipes.recipe import Recipe, parse_recipe
from graftseg.training.cross_validation import CrossValidation
from rank_fakes import on_ranks

RUNS = ("fold-0", "fold-1", "baseline/fold-0", "baseline/fold-1")


def recipe() -> Recipe:
    """Return the tiny recipe with SGD, because Adam enlarges rounding errors, and without dropout."""
    tree = recipe_tree()
    tree["batches"] |= {"labeled": 4, "unlabeled": 4}
    tree["network"] |= {"dropout": False}
    tree["stages"] = [stage | {"optimizer": {"name": "sgd", "learning_rate": 0.05}} for stage in tree["stages"]]
    return parse_recipe(tree, "tiny")


def train(store: Path, out: Path) -> CrossValidation:
    return api.train_folds(recipe(), store, out, folds=2, baseline=True, device="cpu")


def train_on_rank(store: Path, out: Path) -> list[str]:
    """Train, and return the cases that this rank predicts."""
    predict_case, names = PlannedPrediction.predict_case, list[str]()

    def counting(plan, case, *others):  # type: ignore[no-untyped-def]
        names.append(case.name)
        return predict_case(plan, case, *others)

    setattr(PlannedPrediction, "predict_case", counting)  # noqa: B010
    train(store, out)
    return names


@pytest.mark.slow
def test_two_ranks_equal_one_process(store: Store, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    ((first, second),) = on_ranks([partial(train_on_rank, store.path, two)])
    train(store.path, one)
    assert isinstance(first, list) and isinstance(second, list), first
    labeled = sorted(case.name for case in store.of("labeled"))
    assert sorted(first + second) == sorted(labeled * 2) and len(first) == len(second) == 4
    for name in RUNS:
        expected, found = (load_file(RunFolder(folder / name).weights_file) for folder in (one, two))
        assert max(float((expected[key] - found[key]).abs().max()) for key in expected) < 1e-5
        listed = {path.name for path in (one / name / "predictions").iterdir()}
        assert listed == {path.name for path in (two / name / "predictions").iterdir()}
    folds = [json.loads((folder / "folds.json").read_text()) for folder in (one, two)]
    assert folds[0]["folds"] == folds[1]["folds"]
    for name in (".", "baseline"):
        rows = [read_csv(folder / name / "metrics.csv").rows for folder in (one, two)]
        assert [row.case for row in rows[0]] == [row.case for row in rows[1]]
        assert [row.dice for row in rows[0]] == pytest.approx([row.dice for row in rows[1]], abs=0.01, nan_ok=True)
