"""Import of weights of public code: the V-Net and the 2-D U-Net of BCP, SSL4MIS and related repositories.

The layers have the same order and shapes as here, but other names. In some files, layers of the V-Net have the prefixes
``encoder.`` and ``decoder.``. Heads that are used only in training are left out.
"""

import pickle
import re
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder
from graftseg.core.phrases import class_name
from graftseg.core.reading import open_regular, sha256_of
from graftseg.core.run_folder import RunFolder
from graftseg.core.software import versions
from graftseg.data.benchmarks.acdc import CLASSES as ACDC_CLASSES
from graftseg.data.benchmarks.la import CLASSES as LA_CLASSES
from graftseg.inference.model import build_network, save_weights
from graftseg.inference.output_folder import now
from graftseg.recipes.recipe import changed, load_recipe

State = dict[str, Tensor]
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
BOTTOM = NUMBERS.index("five")
"""The coarsest block of the V-Net. Earlier blocks are in the encoder, later blocks in the decoder."""
VNET_LAYER = re.compile(rf"(?:encoder\.|decoder\.)?block_({'|'.join(NUMBERS)})(_dw|_up)?\.conv\.(\d+)\.(\w+)")
UNET_LAYER = re.compile(
    r"(?:encoder\.in_conv|encoder\.down(?P<down>\d)\.maxpool_conv\.1|decoder\.up(?P<up>\d)\.conv)"
    r"\.conv_conv\.(?P<layer>[0145])\.(?P<part>\w+)"
)
UNET_UPSAMPLING = re.compile(r"decoder\.up(\d)\.conv1x1\.(\w+)")
HEAD = re.compile(r"(?:decoder\.)?out_conv\.(\w+)")
ONLY_TRAINING = ("projection_head.", "prediction_head.", "contrastive_class_selector_")
REMEDY = "pass a .pth file of the LA or ACDC code of BCP or SSL4MIS"
VNET = ("la-8/bcp", tuple(LA_CLASSES.values()))  # recipe and classes of the benchmark
UNET = ("acdc-7/bcp", tuple(ACDC_CLASSES.values()))


def import_public_weights(file: Path, out: Path, recipe: str | Path | None, overrides: Iterable[str] = ()) -> RunFolder:
    """Write a run with the weights of a ``.pth`` file of public code and settings of a recipe. No code is executed."""
    if out.exists() or out.is_symlink():
        raise UserError(Code.TARGET_EXISTS, out, "already exists", "name another --out or remove it")
    (default_recipe, default_classes), state = _renamed(file, _read_state(file))
    first, head = state.get("encoder.stages.0.0.0.weight"), state.get("head.weight")
    if first is None or first.ndim < 4 or head is None or head.ndim < 4:
        raise UserError(Code.WEIGHTS_DAMAGED, file, "the first or the last layer is missing", REMEDY)
    template = load_recipe(recipe or default_recipe, overrides)
    imported = changed(template, [f"network.width={len(first)}", "published=null"])
    about = f"settings of {template.name} for imported weights"
    imported = imported.model_copy(update={"name": "imported", "about": about, "baseline": False, "folds": None})
    classes = default_classes if len(head) == len(default_classes) else map(class_name, range(len(head)))
    store = {"identity": "", "classes": list(classes), "channels": int(first.shape[1])}
    student = build_network(imported, store, torch.device("cpu")).method.student
    try:
        student.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        finding = f"the weights do not fit the network {imported.network.name} of the recipe ({reason})"
        raise UserError(Code.RECIPE_MISMATCH, file, finding, "pass another --recipe") from None
    with atomic_folder(out) as folder:
        run = RunFolder(folder)
        save_weights(student.state_dict(), run.trained_file)
        entries = {"status": "finished", "checkpoint": "imported", "device": "", "started": now(), "store": store}
        run.update_manifest({**entries, "versions": versions(), "weights": sha256_of(run.trained_file)})
        imported.save(run.recipe_file)
    return RunFolder(out)


def _read_state(file: Path) -> State:
    """Read the tensors of a file that contains a state dict, alone or in an entry ``net`` or ``state_dict``."""
    if not file.is_file():
        raise UserError(Code.FILE_MISSING, file, "no such file", "check the path")
    try:
        with open_regular(file) as stream:
            content = torch.load(stream, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, LookupError, EOFError, OSError, TypeError) as error:
        reason = " ".join(str(error).split())[:120]
        finding = f"not a file of weights that can be loaded without executing code ({reason})"
        raise UserError(Code.WEIGHTS_DAMAGED, file, finding, REMEDY) from None
    if isinstance(content, dict):
        entries = (content.get(name) for name in ("net", "state_dict"))
        content = next((entry for entry in entries if isinstance(entry, dict)), content)
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise UserError(Code.WEIGHTS_DAMAGED, file, "contains no state dict of a network", REMEDY)
    state = {str(name).removeprefix("module."): value for name, value in content.items()}
    if bad := [name for name, value in state.items() if value.is_floating_point() and not value.isfinite().all()]:
        raise UserError(Code.WEIGHTS_DAMAGED, file, f"{bad[0]} is not finite", "pass another checkpoint")
    return state


def _renamed(file: Path, state: State) -> tuple[tuple[str, tuple[str, ...]], State]:
    tensors = {name: value for name, value in state.items() if not name.startswith(ONLY_TRAINING)}
    is_unet = any(UNET_LAYER.fullmatch(name) for name in tensors)
    rename = _unet_name if is_unet else _vnet_name
    names = {name: rename(name) for name in tensors}
    if unknown := [name for name, new_name in names.items() if new_name is None]:
        finding = f"neither the V-Net nor the 2-D U-Net of the public code (unknown layer {unknown[0]})"
        raise UserError(Code.WEIGHTS_DAMAGED, file, finding, REMEDY)
    renamed = {new_name: tensors[name] for name, new_name in names.items() if new_name is not None}
    return UNET if is_unet else VNET, renamed


def _vnet_name(name: str) -> str | None:
    """Return the name of a tensor of the public V-Net, whose units have three layers, or None for an unknown name."""
    if head := HEAD.fullmatch(name):
        return f"head.{head[1]}"
    if not (match := VNET_LAYER.fullmatch(name)):
        return None
    block, direction, layer, part = NUMBERS.index(match[1]), match[2], int(match[3]), match[4]
    if direction == "_dw":
        return f"encoder.downs.{block + 1}.{layer}.{part}"
    if direction == "_up":
        return f"decoder.ups.{block - BOTTOM}.{layer}.{part}"
    stage = f"encoder.stages.{block}" if block <= BOTTOM else f"decoder.stages.{block - BOTTOM - 1}"
    return f"{stage}.{layer // 3}.{layer % 3}.{part}"


def _unet_name(name: str) -> str | None:
    """Return the name of a tensor of the public U-Net, whose blocks have two units, or None for an unknown name."""
    if head := HEAD.fullmatch(name):
        return f"head.{head[1]}"
    if up := UNET_UPSAMPLING.fullmatch(name):
        return f"decoder.ups.{int(up[1]) - 1}.0.{up[2]}"
    if not (match := UNET_LAYER.fullmatch(name)):
        return None
    stage = f"decoder.stages.{int(match['up']) - 1}" if match["up"] else f"encoder.stages.{int(match['down'] or 0)}"
    unit, layer = divmod(int(match["layer"]), 4)
    return f"{stage}.{2 * unit}.{layer}.{match['part']}"
