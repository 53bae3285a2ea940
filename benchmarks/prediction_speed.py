"""Compare the speed and memory of prediction with MONAI's SlidingWindowInferer, on a CPU or a GPU.

Both sides predict the same synthetic scan with the same network, the same windows and the same precision. Each
prediction runs in its own process, and the sides take turns. The network is trained for a few steps, so that its label
map is not noise. Times are for an image in memory, from the first window to the finished label map in main memory,
after one warm-up window. The memory is the peak resident memory of the process on a CPU, and
``torch.cuda.max_memory_allocated`` on a GPU. nnU-Net's predictor is a third side if ``nnunetv2`` is installed.
The numbers are also written to ``prediction_speed_DEVICE_PRECISION.json``.

    python benchmarks/prediction_speed.py                               # less than five minutes on two cores
    python benchmarks/prediction_speed.py --precision bf16
    python benchmarks/prediction_speed.py --shape 192 192 96            # about one minute
    python benchmarks/prediction_speed.py --device cuda --ct --rounds 3
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.core.files import write_json, write_text
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import FORMAT, RunFolder
from graftseg.inference.model import build_method, load_network, save_weights
from graftseg.methods import Method
from graftseg.recipes.recipe import Recipe, parse_recipe

GIB, MIB = 2**30, 2**20
CT = {"shape": [512, 512, 600], "patch": [128, 128, 128], "width": 16, "classes": 5}
SIDES = ("graftseg", "MONAI", "nnU-Net")


def recipe_of(given: argparse.Namespace) -> Recipe:
    """Return a recipe of the network and the windows."""
    tree = {
        "name": "speed",
        "data": {"dimensions": 3},
        "batches": {"patch": given.patch, "labeled": 2, "unlabeled": 2},
        "network": {"name": "vnet-bn", "width": given.width},
        "stages": [{"method": "bcp", "steps": 1}],
        "inference": {"overlap": given.overlap, "windows_per_forward": given.windows},
    }
    return parse_recipe(tree, "speed")


def make_scan(shape: list[int], classes: int) -> tuple[Tensor, Tensor]:
    """Return a noisy float32 image ``(1, *shape)`` of waves, and its classes: intervals of the waves without noise."""
    waves = torch.ones(1)
    for axis, size in enumerate(shape):
        waves = waves[..., None] * torch.cos(torch.arange(size) / (20 + 5 * axis))
    waves = waves.reshape(shape)
    labels = ((waves - 0.25) * classes / 0.75).ceil().clamp(0, classes - 1).to(torch.uint8)
    noise = torch.empty(shape).normal_(0, 0.3, generator=torch.Generator().manual_seed(0))
    return waves.add_(noise)[None], labels


def train(folder: Path, given: argparse.Namespace, image: Tensor, labels: Tensor) -> None:
    """Write a finished run whose network was trained for ``given.steps`` steps."""
    run, recipe = RunFolder(folder), recipe_of(given)
    torch.manual_seed(0)
    device = torch.device(given.device)
    method = build_method(recipe, recipe.stages[-1], 1, given.classes, device).train()
    optimizer, draw = torch.optim.Adam(method.student.parameters(), 0.003), np.random.default_rng(0)
    for _ in range(given.steps):
        boxes = [[slice(start, start + 48) for start in draw.integers(0, np.array(image.shape[1:]) - 47)] for _ in "ab"]
        x = torch.stack([image[(slice(None), *box)] for box in boxes]).to(device)
        y = torch.stack([labels[tuple(box)] for box in boxes]).long().to(device)
        loss = F.cross_entropy(method.student(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    finish_run(run, recipe, method, given.classes)


def make_run(run: RunFolder, *, patch: list[int], width: int, classes: int) -> None:
    """Write a finished run with untrained weights."""
    given = argparse.Namespace(patch=patch, width=width, overlap=0.5, windows=4)
    recipe = recipe_of(given)
    torch.manual_seed(0)
    method = build_method(recipe, recipe.stages[-1], 1, classes, torch.device("cpu"))
    finish_run(run, recipe, method, classes)


def finish_run(run: RunFolder, recipe: Recipe, method: Method, classes: int) -> None:
    """Write the weights and the facts of a finished run."""
    save_weights(method.student.state_dict(), run.weights_file)
    write_text(run.recipe_file, recipe.to_yaml())
    names = ["background", *(f"class {value}" for value in range(1, classes))]
    facts = {"store": {"identity": "none", "classes": names, "channels": 1}, "device": "cpu", "versions": {}}
    facts |= {"started": "", "weights": sha256_of(run.weights_file)}
    write_json(run.manifest_file, {"format": FORMAT, "status": "finished", **facts})


def graftseg_side(run: RunFolder, device: torch.device, given: argparse.Namespace) -> Callable[[Tensor], np.ndarray]:
    """Return graftseg's prediction of an image."""
    from graftseg.data.grid import Grid
    from graftseg.inference.ensemble import Ensemble

    precision = [f"inference.precision={given.precision}"]
    predictor = Ensemble.load([run], device, precision, "shipped").predictor
    return lambda image: predictor.maps(image, Grid.identity(tuple(image.shape[1:]))).labels


def monai_side(run: RunFolder, device: torch.device, given: argparse.Namespace) -> Callable[[Tensor], np.ndarray]:
    """Return MONAI's prediction of an image."""
    from monai.inferers import SlidingWindowInferer

    network = load_network(run, device).method.segment
    inferer = SlidingWindowInferer(
        given.patch, given.windows, given.overlap, mode="gaussian", cache_roi_weight_map=True
    )

    def predict(image: Tensor) -> np.ndarray:
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=given.precision == "bf16"):
            outputs = inferer(image[None].to(device), network)
            return outputs.argmax(1)[0].to(torch.uint8).cpu().numpy()

    return predict


def nnunet_side(run: RunFolder, device: torch.device, given: argparse.Namespace) -> Callable[[Tensor], np.ndarray]:
    """Return the prediction of an image by nnU-Net's predictor. On a GPU it always computes in float16."""
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    predictor = nnUNetPredictor(1 - given.overlap, use_mirroring=False, device=device, allow_tqdm=False)
    predictor.network = load_network(run, device).method.student
    predictor.configuration_manager = SimpleNamespace(patch_size=tuple(given.patch))
    predictor.label_manager = SimpleNamespace(num_segmentation_heads=given.classes)
    predictor.allowed_mirroring_axes = None

    def predict(image: Tensor) -> np.ndarray:
        return predictor.predict_sliding_window_return_logits(image).argmax(0).to(torch.uint8).cpu().numpy()

    return predict


def measure(given: argparse.Namespace) -> None:
    """Predict the scan with one side, write the label map and print the measurements; called in a child process."""
    device, run = torch.device(given.device), RunFolder(given.folder / "run")
    side = {"graftseg": graftseg_side, "MONAI": monai_side, "nnU-Net": nnunet_side}[given.side]
    predict = side(run, device, given)
    image = torch.from_numpy(np.load(given.folder / "image.npy"))
    predict(image[(slice(None), *(slice(size) for size in given.patch))].clone())
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    ready, before, began = peak(), resource.getrusage(resource.RUSAGE_SELF), perf_counter()
    labels = predict(image)
    seconds, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    on_gpu = torch.cuda.max_memory_allocated() / GIB if device.type == "cuda" else None
    np.save(given.folder / f"{given.side}.npy", labels)
    used = [end - begin for begin, end in zip(before[:2], after[:2], strict=True)]
    facts = {"seconds": seconds, "user": used[0], "system": used[1], "ready": ready, "peak": on_gpu or peak()}
    print(json.dumps(facts))


def peak() -> float:
    """Return the peak memory of this process in GiB. ``ru_maxrss`` would include the parent process."""
    return resident("VmHWM:") / GIB


def resident(name: str) -> int:
    """Return a number of bytes from the status of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def compare(given: argparse.Namespace) -> None:
    """Measure all sides in turns and print a table."""
    sides = [side for side in SIDES if side != "nnU-Net" or find_spec("nnunetv2")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        image, labels = make_scan(given.shape, given.classes)
        train(folder / "run", given, image, labels)
        np.save(folder / "image.npy", image.numpy())
        print(f"{given.shape} voxels, {given.classes} classes, width {given.width}, windows {given.patch}", end=", ")
        load, threads = os.getloadavg()[0], torch.get_num_threads()
        print(f"{given.precision}, {given.device}, {threads} threads, load {load:.1f}")
        print("round\tside\tseconds\tuser\tsystem\tGiB ready\tGiB peak", flush=True)
        results: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for number in range(given.rounds):
            for side in sides:
                options = [*sys.argv[1:], "--side", side, "--folder", name]
                done = subprocess.run(
                    [sys.executable, __file__, *options], check=True, stdout=subprocess.PIPE, text=True
                )
                results[side].append(json.loads(done.stdout.splitlines()[-1]))
                row = (f"{value:.2f}" for value in results[side][-1].values())
                print(number + 1, side, *row, sep="\t", flush=True)
        ours = np.load(folder / "graftseg.npy")
        print(f"voxels equal to the true classes: {np.mean(ours == labels.numpy()):.5f}")
        summaries = {}
        for side in sides[1:]:
            equal = f"voxels with equal labels {np.mean(ours == np.load(folder / f'{side}.npy')):.6f}"
            summaries[side] = f"{summary(results['graftseg'], results[side])}, {equal}"
            print(f"graftseg against {side}: {summaries[side]}")
        names = ("shape", "patch", "width", "classes", "overlap", "windows", "precision", "device")
        facts = {name: getattr(given, name) for name in names} | {"threads": threads, "load": load}
        write_json(given.json or default_json(given), facts | {"rounds": results, "graftseg against": summaries})


def default_json(given: argparse.Namespace) -> Path:
    """Return the file next to this script."""
    return Path(__file__).with_name(f"prediction_speed_{torch.device(given.device).type}_{given.precision}.json")


def summary(ours: list[dict[str, float]], others: list[dict[str, float]]) -> str:
    """Return the ratios of time, CPU time and memory."""
    times = [other["seconds"] / own["seconds"] for own, other in zip(ours, others, strict=True)]
    cpu = [sum(run["user"] + run["system"] for run in side) for side in (ours, others)]
    memory = max(run["peak"] for run in ours) / max(run["peak"] for run in others)
    spread = f"{min(times):.2f} to {max(times):.2f}"
    return (
        f"{median(times):.2f} times as fast ({spread}), CPU time {cpu[1] / cpu[0]:.2f} times, memory {memory:.2f} times"
    )


def main() -> None:
    """Read the options and compare, or measure one side in a child process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs=3, type=int, default=[384, 384, 160])
    parser.add_argument("--patch", nargs=3, type=int, default=[96, 96, 64])
    parser.add_argument("--width", type=int, default=8, help="Channels of the network at full resolution.")
    parser.add_argument("--classes", type=int, default=2)
    parser.add_argument("--ct", action="store_true", help=f"Use {CT}.")
    parser.add_argument("--overlap", type=float, default=0.5)
    parser.add_argument("--windows", type=int, default=4, help="Windows per forward pass.")
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60, help="Training steps of the network.")
    parser.add_argument("--json", type=Path, help="File for the numbers.")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ct:
        vars(given).update(CT)
    measure(given) if given.side else compare(given)


if __name__ == "__main__":
    main()
