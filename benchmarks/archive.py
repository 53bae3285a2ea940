"""Measure the overhead of ``graftseg predict`` on an archive of many small scans: time per scan and memory.

Phantoms of 32x32x16 voxels are written as .nii files, and a tiny, untrained network predicts them. The script measures
the time in the network separately. The archive is then predicted again, so that all scans are skipped. The memory
must not grow from the second tenth of the scans to the last. The numbers are also written to ``archive.json``.

    python benchmarks/archive.py --scans 10000       # less than five minutes on one core
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from prediction_speed import MIB, make_run, resident
from torch import Tensor

from graftseg.core.files import write_json
from graftseg.core.run_folder import RunFolder
from graftseg.core.software import versions
from graftseg.core.types import Geometry
from graftseg.data.scans import write_scan
from graftseg.inference import predict as prediction
from graftseg.inference.predict import PlannedPrediction, plan_prediction
from graftseg.inference.prediction_settings import PredictionSettings

SHAPE, PATCH = (32, 32, 16), [32, 32, 16]
CPU = torch.device("cpu")


def write_scans(folder: Path, count: int) -> None:
    """Write small scans of noise."""
    folder.mkdir()
    noise, geometry = np.random.default_rng(0), Geometry(SHAPE, tuple(map(tuple, np.eye(4).tolist())))
    for number in range(count):
        image = noise.normal(size=SHAPE).astype(np.float32)
        write_scan(folder / f"scan-{number}.nii", image, geometry)


def timed(function: Callable[..., Tensor], times: list[tuple[float, float]]) -> Callable[..., Tensor]:
    """Return a function that also adds its time and its CPU time to a list."""

    def wrapped(*arguments: object) -> Tensor:
        began = perf_counter(), process_time()
        result = function(*arguments)
        times.append((perf_counter() - began[0], process_time() - began[1]))
        return result

    return wrapped


def measure(plan: PlannedPrediction, count: int) -> dict[str, Any]:
    """Predict all cases, or skip them. Print and return the time and the memory."""
    in_network: list[tuple[float, float]] = []
    memory: list[float] = []
    for member in plan.networks.members:
        member.method.segment = timed(member.method.segment, in_network)  # type: ignore[method-assign]
    # the name that predict imported is replaced, so that every call is noted
    key = vars(prediction)["case_key"]

    def noted(*arguments: object) -> str:
        memory.append(resident("VmRSS:") / MIB)
        return str(key(*arguments))

    vars(prediction)["case_key"] = noted
    began = perf_counter(), process_time()
    predicted = plan.predict()
    seconds, cpu = perf_counter() - began[0], process_time() - began[1]
    vars(prediction)["case_key"] = key
    assert len(predicted.cases) == count and not predicted.failures
    network, cpu_network = (sum(times) for times in zip(*in_network, strict=True)) if in_network else (0.0, 0.0)
    print(f"{predicted.skipped} of {count} scans skipped")
    facts: dict[str, Any] = {"skipped": predicted.skipped}
    for name, total, part in (("time", seconds, network), ("CPU time", cpu, cpu_network)):
        spent = [round(1000 * value / count, 3) for value in (total, part, total - part)]
        facts |= {name: dict(zip(("ms per scan", "in the network", "overhead"), spent, strict=True))}
        print("{}: {:.2f} ms per scan, {:.2f} ms of it in the network, overhead {:.2f} ms".format(name, *spent))
    tenths = [memory[count * tenth // 10] for tenth in range(1, 10)] + [memory[-1]]
    print("MiB after each tenth of the scans:", *(f"{value:.0f}" for value in tenths), flush=True)
    return facts | {"MiB after each tenth": [round(value) for value in tenths]}


def main() -> None:
    """Write the scans, predict them, and predict them again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, default=10000)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    given = parser.parse_args()
    count, passes = given.scans, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = RunFolder(folder / "run")
        make_run(run, patch=PATCH, width=2, classes=2)
        write_scans(folder / "scans", count)
        for _ in range(2):
            began = perf_counter()
            settings = PredictionSettings(is_resumed=True)
            plan = plan_prediction(run, folder / "scans", folder / "out", CPU, settings)
            listing = round(1000 * (perf_counter() - began) / count, 3)
            print(f"listing: {listing:.2f} ms per scan")
            passes.append({"listing": listing} | measure(plan, count))
    write_json(given.json, {"scans": count, "load": os.getloadavg()[0], "versions": versions(), "passes": passes})


if __name__ == "__main__":
    main()
