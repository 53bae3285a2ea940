"""Damaged files of runs, exports and stores: flipped bits, truncation and inserted bytes."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tiny
from isolated import isolated
from part import Part

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.core.run_folder import RunFolder, read_log
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import CASES, Store, open_store
from graftseg.inference.export import onnx_model
from graftseg.inference.export import weights as exported_weights
from graftseg.inference.model import load_network
from graftseg.recipes.recipe import load_recipe
from graftseg.training.checkpoint import checkpoints_in, load_checkpoint

BATCH = 250
"""Number of damaged files that one forked process reads."""


def damage_files(work: Path, seed: int, count: int) -> Part:
    """Damage files of a run, of an export and of a store, and load them."""
    part = Part("damaged files of runs, exports and stores", "loading fails with an error message, or nothing changed")
    targets = _targets(work)
    for number, (name, (path, load)) in enumerate(targets.items()):
        share = count // len(targets) + (number < count % len(targets))
        content = path.read_bytes()
        for start in range(0, share, BATCH):
            seeds = [f"{seed}-{name}-{index}" for index in range(start, min(start + BATCH, share))]
            ending = isolated(partial(_accepted, path, load, seeds), seconds=600)
            path.write_bytes(content)
            accepted = ending.detail if ending.kind == "ok" else {one: str(ending.detail) for one in seeds}
            for one in seeds:
                part.expect(one not in accepted, f"{one}: {accepted.get(one)}")
    return part


def _targets(work: Path) -> dict[str, tuple[Path, Callable[[], Any]]]:
    """Train, export and prepare; return every file to damage with a function that loads it."""
    recipe, scans = tiny.tiny_recipe(), tiny.write_scans(work / "scans")
    store = prepare(read_layout(scans), work / "store", recipe.data)
    run = RunFolder(work / "run")
    api.train(recipe, store.path, run.path, device="cpu")
    export, onnx = work / "network.safetensors", work / "onnx" / "model.onnx"
    api.export("weights", run.path, export)
    api.export("onnx", run.path, onnx.parent)
    bundle = work / "bundle"
    api.export("monai", run.path, bundle)
    folds = RunFolder(work / "folds")
    api.train_folds(recipe, store.path, folds.path, folds=2, device="cpu")
    texts = {
        "run.json": run.manifest_file,
        "folds.json": folds.folds_file,
        "manifest.json": store.path / "manifest.json",
    }
    checkpoint, case = checkpoints_in(run.checkpoints)[-1], store.of("labeled")[0]
    return {
        **{name: (path, partial(_unchanged, path, read_json(path))) for name, path in texts.items()},
        "recipe.yaml": (run.recipe_file, lambda: load_recipe(run.recipe_file) == recipe),
        "log.jsonl": (run.log_file, lambda: read_log(run.log_file) is not None),
        "ONNX": (onnx, lambda: onnx_model.load(onnx)),
        "checkpoint": (checkpoint, lambda: load_checkpoint(checkpoint)),
        "weights of a run": (run.weights_file, lambda: load_network(run)),
        "MONAI bundle": (bundle / "models" / "model.ts", lambda: _load_bundle(bundle)),
        "exported weights": (export, lambda: exported_weights.load(export)),
        "prepared image": (store.path / CASES / case.image, lambda: _verify_case(store.path)),
        "prepared label map": (store.path / CASES / str(case.label), lambda: _verify_case(store.path)),
    }


def _load_bundle(bundle: Path) -> None:
    """Load the network of a bundle as MONAI does. A wrong checksum is a ValueError, which MONAI wraps."""
    from monai.bundle import ConfigParser

    content = read_json(bundle / "configs" / "inference.json")
    try:
        ConfigParser(content | {"bundle_root": str(bundle)}).get_parsed_content("network")
    except RuntimeError as error:
        if "is damaged" not in str(error.__cause__):
            raise
        raise UserError(Code.WEIGHTS_DAMAGED, bundle, "damaged", "copy the bundle again") from None


def _unchanged(path: Path, content: dict[str, Any]) -> bool:
    """Return whether all entries can be read as before. Damage to the name of the checksum adds an entry."""
    found = read_json(path)
    return isinstance(found, dict) and all(found.get(key) == value for key, value in content.items())


def _verify_case(folder: Path) -> None:
    store: Store = open_store(folder)
    case = store.of("labeled")[0]
    for file in (case.image, case.label):
        store.verify_file(case, str(file))


def _accepted(path: Path, load: Callable[[], Any], seeds: list[str]) -> dict[str, str]:
    """Damage the file once for each seed. Return, by seed, why the promise was broken: no error, or the wrong error."""
    content, accepted = path.read_bytes(), {}
    for seed in seeds:
        path.write_bytes(damaged(content, random.Random(seed)))
        try:
            if load() is not True:
                accepted[seed] = "loaded"
        except UserError:
            pass
        except Exception as error:
            accepted[seed] = repr(error)[:200]
    return accepted


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the content with one flipped bit, or truncated, or with an inserted byte."""
    kind, place = rng.random(), rng.randrange(len(content))
    if kind < 0.8:
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8)
        return bytes(changed)
    return content[:place] if kind < 0.9 else content[:place] + rng.randbytes(1) + content[place:]
