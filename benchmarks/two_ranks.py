"""Measure a training step on two ranks with one thread each against one process with one thread, in turn.

The step is self-training by copy-paste in 3-D on phantoms. In each round, rank 0 trains alone while rank 1 waits, and
then both train together, with the same batches: first with the batch statistics of all images (sync), then with those
of the images of each rank (local). The ratio of a round is the time alone divided by the time together.
A rank has two images in each pass: PyTorch convolves a single image with one thread several times slower. The times are
also written to ``two_ranks.json``.

    python benchmarks/two_ranks.py       # needs two free cores
"""

import argparse
import os
import socket
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from torch import multiprocessing

from graftseg.core import ranks
from graftseg.core.files import write_json
from graftseg.core.software import versions
from graftseg.data.batches import Batches
from graftseg.data.layouts import read_layout
from graftseg.data.phantom import write_phantoms
from graftseg.data.prepare import prepare
from graftseg.data.store import open_store
from graftseg.inference.model import build_method
from graftseg.recipes.recipe import Recipe, parse_recipe
from graftseg.training.clock import StepClock
from graftseg.training.loop import build_optimizers
from graftseg.training.step import StepMode, Stepper

CPU = torch.device("cpu")


def recipe_of(side: int, width: int) -> Recipe:
    """Return a recipe with one stage of self-training."""
    tree = {
        "name": "two-ranks",
        "data": {"dimensions": 3},
        "batches": {"patch": [side] * 3, "labeled": 8, "unlabeled": 8},
        "network": {"name": "vnet-bn", "width": width},
        "stages": [{"method": "bcp", "steps": 1000}],
    }
    return parse_recipe(tree, "two-ranks")


def stepper_of(recipe: Recipe, store: Path, statistics: str = "sync") -> Stepper:
    """Return a stepper for the ranks that take part now."""
    torch.manual_seed(0)
    opened, stage = open_store(store), recipe.stages[0]
    method = build_method(recipe, stage, opened.channels, len(opened.classes), CPU).train()
    batches = Batches(opened, recipe.batches, seed=0, device=CPU)
    mode = StepMode(local_statistics=statistics == "local")
    return Stepper(method, build_optimizers(method, stage), stage, batches, mode, StepClock(CPU), index=0)


def timed(stepper: Stepper, first: int, steps: int) -> float:
    """Return the seconds per step."""
    began = perf_counter()
    for step in range(first, first + steps):
        float(stepper(step).values[-1])
    return (perf_counter() - began) / steps


def work(rank: int, port: int, recipe: Recipe, store: Path, given: argparse.Namespace) -> None:
    """Train as one of two ranks, and print and save the times on rank 0."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    names = {"TORCHELASTIC_RUN_ID": "two ranks", "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update({name: str(value) for name, value in numbers.items()} | names)
    torch.set_num_threads(1)
    with ranks.joined(CPU):
        together = {statistics: stepper_of(recipe, store, statistics) for statistics in ("sync", "local")}
        with ranks.alone():
            alone = stepper_of(recipe, store)
        found = []
        for number in range(given.rounds + 1):
            first = number * given.steps
            one = float(ranks.on_main(lambda first=first: timed(alone, first, given.steps)))
            two = {name: timed(stepper, first, given.steps) for name, stepper in together.items()}
            if number and ranks.is_main():  # the first round warms up
                found.append({"one process": one} | {f"two ranks, {name}": seconds for name, seconds in two.items()})
                ratios = ", ".join(f"{name} {one / seconds:.2f}" for name, seconds in two.items())
                print(f"round {number}: one process {one:.3f} s; ratio {ratios}; 2 would be ideal", flush=True)
        if ranks.is_main():
            facts = {"load": os.getloadavg()[0], "versions": versions(), "seconds per step": found}
            write_json(given.json, {"side": given.side, "width": given.width, "steps": given.steps} | facts)


def main() -> None:
    """Prepare phantoms and start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="steps per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", type=int, default=48, help="side of a patch in voxels")
    parser.add_argument("--width", type=int, default=8, help="width of the network")
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"), help="file for the times")
    arguments = parser.parse_args()
    recipe = recipe_of(arguments.side, arguments.width)
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        scans, store = Path(folder) / "scans", Path(folder) / "store"
        write_phantoms(
            scans, shape=(arguments.side,) * 3, counts={"labeled": 4, "unlabeled": 4, "test": 0}, seed=0, shift=0.5
        )
        prepare(read_layout(scans), store, recipe.data)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        options = (port, recipe, store, arguments)
        multiprocessing.spawn(work, options, nprocs=2)


if __name__ == "__main__":
    main()
