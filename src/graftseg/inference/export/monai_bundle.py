"""Export to a MONAI bundle: the network as TorchScript, and preparation and post-processing as MONAI transforms.

The bundle runs with MONAI and without graftseg. Its label maps equal those of ``graftseg predict``, except for a few
voxels where two classes are equally probable up to rounding.
"""

import hashlib
import io
import warnings
from importlib.metadata import version
from typing import Any

import torch

from graftseg.core.errors import Code, UserError, visible
from graftseg.core.files import atomic_folder, write_bytes, write_json, write_text
from graftseg.core.packages import import_optional
from graftseg.core.version import __version__
from graftseg.data.intensity import IntensitySettings
from graftseg.data.prepare import PrepareSettings
from graftseg.data.store import find_store, open_store
from graftseg.inference.export import Request
from graftseg.inference.model import Probabilities, TrainedNetwork, load_network
from graftseg.recipes.settings import InferenceSettings

Config = dict[str, Any]
PACKAGES = {"pytorch-ignite": "0.5.0", "fire": "0.6.0", "scikit-image": "0.22.0"}
"""Packages that a bundle needs, with versions. MONAI finds the largest components with scikit-image."""
FIRST_CHANNEL = "_0000.nii"  # end of the file name of a first channel, without ``.gz``
# The following strings are expressions in the configuration language of MONAI bundles.
FILES = "glob.glob(os.path.join(@dataset_dir, '*.nii*'))"
SINGLE_CHANNEL_CASES = f"$[{{'image': path}} for path in sorted({FILES})]"
MULTI_CHANNEL_CASES = (
    f"$[{{'image': sorted(glob.glob(glob.escape(path).replace('{FIRST_CHANNEL}', '_[0-9][0-9][0-9][0-9].nii')))}}"
    f" for path in sorted({FILES}) if '{FIRST_CHANNEL}' in path]"
    f" + [{{'image': path}} for path in sorted({FILES}) if re.search('_[0-9]{{4}}.nii', path) is None]"
)
# Resize keeps the edges of the volume in place, as graftseg does. Spacingd keeps the exact spacing instead.
RESIZE = (
    "$lambda image: monai.transforms.Resize(mode=@resampling, spatial_size=[max(1, round(n * float(s) / t)) if t else n"
    " for n, s, t in zip(image.shape[1:], image.pixdim, @spacing)])(image)"
)
# LOW and HIGH are placeholders. With equal percentiles, graftseg scales all values to [0, 1], but MONAI does not.
PERCENTILES = (
    "$lambda image: monai.utils.convert_to_dst_type(monai.utils.convert_to_tensor(torch.stack([(lambda low, high:"
    " monai.transforms.ScaleIntensityRange(low, high, 0.0, 1.0, clip=True) if low < high"
    " else monai.transforms.ScaleIntensity(0.0, 1.0))"
    "(*map(float, numpy.percentile(numpy.asarray(channel), [LOW, HIGH])))(channel)"
    " for channel in monai.utils.convert_to_tensor(image)])), dst=image)[0]"
)
# The expression raises an error if the file does not have the checksum.
NETWORK_FILE = (
    "$@bundle_root + '/models/model.ts'"
    " if hashlib.sha256(open(@bundle_root + '/models/model.ts', 'rb').read()).hexdigest() == @network_sha256"
    " else (_ for _ in ()).throw(ValueError('models/model.ts is damaged; copy the bundle again'))"
)
REMEDY = "export onnx or weights instead"
RESIZE_BACK = (
    "$lambda case: case | {'pred': monai.transforms.Resize(mode=@resampling, spatial_size=case['scan'].shape[1:])"
    "(case['pred'])}"
)


def write(request: Request) -> list[str]:
    """Write ``configs/metadata.json``, ``configs/inference.json``, ``models/model.ts`` and ``docs/README.md``."""
    trained = load_network(request.run)
    unsupported = {
        "stretches slices to the patch (batches.fit)": trained.recipe.batches.fit == "stretch",
        "removes components by volume (inference.min_component_ml)": trained.recipe.inference.min_component_ml,
    }
    if used := [step for step, is_used in unsupported.items() if is_used]:
        finding = f"its recipe {used[0]}, which a bundle does not support"
        raise UserError(Code.EXPORT_UNSUPPORTED, request.run.path, finding, REMEDY)
    axes = _axes(request, trained)
    network = _traced(trained)
    inference = _inference(trained, axes, hashlib.sha256(network).hexdigest())
    with atomic_folder(request.out) as folder:
        write_json(folder / "configs" / "metadata.json", _metadata(trained))
        write_json(folder / "configs" / "inference.json", inference)
        write_bytes(folder / "models" / "model.ts", network)
        write_text(folder / "docs" / "README.md", _page(trained))
    lines = [f"{request.out}: a MONAI bundle; its docs/README.md explains how to run it"]
    if trained.recipe.inference.flips:
        lines.append("the bundle does not average over flips (inference.flips), so its label maps differ a little")
    return lines


def _axes(request: Request, trained: TrainedNetwork) -> int:
    """Return the number of spatial axes of the training scans. A 2-D network may be trained on volumes."""
    if trained.recipe.data.dimensions == 3:
        return 3
    remedy = "restore the store there or in RUN/store; only the store shows whether the scans are slices or volumes"
    return len(open_store(find_store(request.run, remedy)).cases[0].shape)


def _traced(trained: TrainedNetwork) -> bytes:
    network = Probabilities(trained.method.student).eval()
    with warnings.catch_warnings(), torch.no_grad():
        # Tracing warns about a check of the size, which every window passes.
        warnings.simplefilter("ignore")
        example = torch.zeros(1, trained.channels, *trained.patch)
        traced = torch.jit.trace(network, example)  # type: ignore[no-untyped-call]
        # Write to memory, because PyTorch's file writer ends the process if the disk is full.
        stream = io.BytesIO()
        torch.jit.save(traced, stream)
    return stream.getvalue()


def _inference(trained: TrainedNetwork, axes: int, sha256: str) -> Config:
    return {
        "imports": ["$import glob", "$import hashlib", "$import os", "$import re", "$import monai"],
        "bundle_root": ".",
        "dataset_dir": "$@bundle_root + '/scans'",
        "output_dir": "$@bundle_root + '/labels'",
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "network_sha256": sha256,
        "network_file": NETWORK_FILE,
        "network_def": "$torch.jit.load(@network_file, map_location=@device)",
        "network": "$@network_def.eval()",
        "datalist": SINGLE_CHANNEL_CASES if trained.channels == 1 else MULTI_CHANNEL_CASES,
        **_spacing(trained.recipe.data, axes),
        "loading": {"_target_": "Compose", "transforms": _loading(trained.recipe.data, axes)},
        "preprocessing": {"_target_": "Compose", "transforms": _preprocessing(trained.recipe.data)},
        "dataset": {"_target_": "Dataset", "data": "@datalist", "transform": "@preprocessing"},
        "dataloader": {"_target_": "DataLoader", "dataset": "@dataset", "batch_size": 1, "num_workers": 0},
        "inferer": _inferer(trained, axes),
        "postprocessing": {"_target_": "Compose", "transforms": _postprocessing(trained)},
        "evaluator": {
            "_target_": "SupervisedEvaluator",
            "device": "@device",
            "val_data_loader": "@dataloader",
            "network": "@network",
            "inferer": "@inferer",
            "postprocessing": "@postprocessing",
        },
        "run": ["$@evaluator.run()"],
    }


def _loading(data: PrepareSettings, axes: int) -> list[Config]:
    """Return the transforms that load a file and reorder its axes. Their inverse is applied to the probabilities."""
    transforms: list[Config] = [
        {"_target_": "LoadImaged", "keys": "scan", "reader": "NibabelReader"},
        {"_target_": "EnsureChannelFirstd", "keys": "scan"},
    ]
    if data.orientation is not None and axes == 3:
        codes = {"axcodes": data.orientation, "labels": [["L", "R"], ["P", "A"], ["I", "S"]]}
        transforms.append({"_target_": "Orientationd", "keys": "scan", **codes})
    return transforms


def _preprocessing(data: PrepareSettings) -> list[Config | str]:
    resize = [{"_target_": "Lambdad", "keys": "image", "func": RESIZE}] if data.spacing is not None else []
    return [
        {"_target_": "CopyItemsd", "keys": "image", "names": "scan"},
        {"_target_": "DeleteItemsd", "keys": "image"},
        "@loading",
        {"_target_": "CopyItemsd", "keys": "scan", "names": "image"},
        *resize,
        *_intensity(data.intensity),
        {"_target_": "EnsureTyped", "keys": "image", "dtype": "$torch.float32"},
    ]


def _spacing(data: PrepareSettings, axes: int) -> Config:
    """Return the spacing in millimeters along each axis (0: unchanged) and the interpolation mode."""
    if data.spacing is None:
        return {}
    steps = [step or 0.0 for step in data.spacing] + [0.0] * (axes - data.dimensions)
    return {"spacing": steps, "resampling": "trilinear" if axes == 3 else "bilinear"}


def _intensity(settings: IntensitySettings) -> list[Config]:
    """Return MONAI's transform for an intensity rule. As in graftseg, zscore and minmax set a constant channel to 0."""
    mean, std = settings.mean or 0.0, settings.std or 1.0
    unit = {"b_min": 0.0, "b_max": 1.0, "clip": True}
    window = {"_target_": "ScaleIntensityRanged", "a_min": settings.low, "a_max": settings.high, **unit}
    percentiles = PERCENTILES.replace("LOW", repr(settings.low)).replace("HIGH", repr(settings.high))
    rules: dict[str, Config | None] = {
        "none": None,
        "zscore": {"_target_": "NormalizeIntensityd", "channel_wise": True},
        "minmax": {"_target_": "ScaleIntensityd", "minv": 0.0, "maxv": 1.0, "channel_wise": True},
        "percentile": {"_target_": "Lambdad", "func": percentiles},
        "window": window,
        "window-zscore": window | {"b_min": (settings.low - mean) / std, "b_max": (settings.high - mean) / std},
    }
    if settings.rule not in rules:
        finding = f"MONAI has no transform for the rule {settings.rule}"
        raise UserError(Code.EXPORT_UNSUPPORTED, "data.intensity", finding, REMEDY)
    chosen = rules[settings.rule]
    return [] if chosen is None else [chosen | {"keys": "image"}]


def _inferer(trained: TrainedNetwork, axes: int) -> Config:
    settings, patch = trained.recipe.inference, trained.patch
    common: Config = {
        "roi_size": list(patch),
        "sw_batch_size": settings.windows_per_forward,
        "overlap": _overlap(settings, patch),
        "mode": "gaussian" if settings.window == "gaussian" else "constant",
    }
    if axes > len(patch):
        return {"_target_": "SliceInferer", "spatial_dim": 2, **common, "overlap": [*common["overlap"], 0.0]}
    return {"_target_": "SlidingWindowInferer", **common}


def _overlap(settings: InferenceSettings, patch: tuple[int, ...]) -> list[float]:
    """Return the overlaps from which MONAI computes the strides of graftseg. MONAI rounds strides down."""
    if settings.stride is None:
        return [settings.overlap] * len(patch)
    return [max(0.0, 1 - (step + 0.01) / size) for step, size in zip(settings.stride, patch, strict=True)]


def _postprocessing(trained: TrainedNetwork) -> list[Config]:
    """Return the transforms that resample probabilities to the scan, decide labels and keep largest components."""
    settings, classes = trained.recipe.inference, len(trained.classes)
    resize = [{"_target_": "Lambda", "func": RESIZE_BACK}] if trained.recipe.data.spacing is not None else []
    inverse = {"transform": "@loading", "orig_keys": "scan", "nearest_interp": False, "to_tensor": True}
    transforms: list[Config] = [
        *resize,
        {"_target_": "Invertd", "keys": "pred", **inverse},
        {"_target_": "AsDiscreted", "keys": "pred", "argmax": True},
    ]
    rule = settings.largest_component
    largest = {"_target_": "KeepLargestConnectedComponentd", "keys": "pred", "independent": True, "is_onehot": False}
    if values := list(range(1, classes)) if rule is True else list(rule or ()):
        transforms.append({**largest, "applied_labels": values})
    for value, count in settings.keep_components.items():
        transforms.append({**largest, "applied_labels": [value], "num_components": count})
    saved = {"output_dir": "@output_dir", "output_postfix": "", "output_dtype": "$numpy.uint8"}
    # Without `resample`, the writer guesses the axes. No voxel changes, because the label map is on the scan's grid.
    grid = {"resample": True, "mode": "nearest"}
    saving = {"_target_": "SaveImaged", "keys": "pred", "separate_folder": False, **grid, **saved}
    return [*transforms, saving]


def _metadata(trained: TrainedNetwork) -> Config:
    shape = list(trained.patch)
    image = {
        "type": "image",
        "format": "magnitude",
        "num_channels": trained.channels,
        "spatial_shape": shape,
        "dtype": "float32",
        "value_range": [],
        "is_patch_data": True,
        "channel_def": {str(channel): f"channel {channel}" for channel in range(trained.channels)},
    }
    labels = {str(value): name for value, name in enumerate(trained.classes)}
    return {
        "version": "0.1.0",
        "changelog": {"0.1.0": f"exported by graftseg {__version__}"},
        "monai_version": import_optional("monai", "this export", extra="export", load=version),
        "pytorch_version": version("torch"),
        "numpy_version": version("numpy"),
        "required_packages_version": {"nibabel": version("nibabel"), **PACKAGES},
        "name": trained.recipe.name,
        "task": f"segmentation of {', '.join(trained.classes[1:])}",
        "description": "A network trained from labeled and unlabeled scans by graftseg.",
        "authors": "",
        "copyright": "",
        "network_data_format": {
            "inputs": {"image": image},
            "outputs": {"pred": image | {"format": "segmentation", "num_channels": len(labels), "channel_def": labels}},
        },
    }


def _page(trained: TrainedNetwork) -> str:
    names = "one NIfTI file per scan" if trained.channels == 1 else "CASE_0000, CASE_0001 ..., or multi-channel files"
    return visible(
        f"# {trained.recipe.name}\n\n"
        f"Segments {', '.join(trained.classes[1:])}; label values count from 1 in this order.\n\n"
        "Put the scans into a folder (" + names + ") and run, in the folder of the bundle:\n\n"
        "    python -m monai.bundle run --config_file configs/inference.json --meta_file configs/metadata.json \\\n"
        "      --dataset_dir SCANS --output_dir LABELS\n\n"
        "The bundle needs the packages monai, nibabel, pytorch-ignite, fire and scikit-image.\n"
        "The label maps are on the grids of the scans.\n"
    )
