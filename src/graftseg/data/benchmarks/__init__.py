"""The published benchmarks: how to recognise and read the folder of each. All that is particular to them is in here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from graftseg.core.errors import Code, UserError
from graftseg.data.benchmarks import acdc, la, pancreas
from graftseg.data.dataset import Dataset


@dataclass(frozen=True)
class Benchmark:
    """A published data set: which folders have its layout, how to read one, its kind of network and classes.

    ``find`` takes a folder or the one above it; ``recognise`` is the same for a folder of which nobody said what it
    is, or None if it cannot be told.
    """

    find: Callable[[Path], list[Path]]
    recognise: Callable[[Path], list[Path]] | None
    read: Callable[[Path], Dataset]
    looked_for: str
    dimensions: Literal[2, 3]
    classes: Mapping[int, str]


BENCHMARKS: dict[str, Benchmark] = {
    "la": Benchmark(la.find_la, la.find_la, la.read_la, la.LOOKED_FOR, 3, la.CLASSES),
    "acdc": Benchmark(acdc.find_acdc, acdc.find_acdc, acdc.read_acdc, acdc.LOOKED_FOR, 2, acdc.CLASSES),
    "pancreas": Benchmark(
        pancreas.find_numbered,
        pancreas.find_pancreas,
        partial(pancreas.read_pancreas, protocol="pancreas"),
        pancreas.LOOKED_FOR,
        3,
        pancreas.CLASSES,
    ),
    "pancreas-62": Benchmark(
        pancreas.find_numbered,
        None,
        partial(pancreas.read_pancreas, protocol="pancreas-62"),
        pancreas.LOOKED_FOR,
        3,
        pancreas.CLASSES,
    ),
}


def read_benchmark(name: str, folder: Path) -> Dataset:
    """The cases of a benchmark, from its folder or the one above."""
    if name not in BENCHMARKS:
        raise UserError(Code.UNKNOWN_NAME, f"--benchmark {name}", "unknown", f"choose one of {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[name]
    if not folder.is_dir():
        finding = "this is a file, not a folder" if folder.exists() else "there is no such folder"
        raise UserError(Code.BENCHMARK_MISMATCH, folder, finding, f"name the folder that holds {benchmark.looked_for}")
    found = benchmark.find(folder)
    if not found:
        finding = f"not the folder of the benchmark {name}"
        raise UserError(Code.BENCHMARK_MISMATCH, folder, finding, f"name the folder that holds {benchmark.looked_for}")
    return _read(benchmark, _only(folder, found))


def classes_of(name: str) -> tuple[str, ...]:
    """The names of a benchmark's label values, from 0 on; none where it is unknown."""
    return tuple(BENCHMARKS[name].classes.values()) if name in BENCHMARKS else ()


def recognise_benchmark(folder: Path) -> Dataset | None:
    """The cases of whichever benchmark a folder, or the only folder of one within it, holds."""
    found = {
        root: benchmark
        for benchmark in BENCHMARKS.values()
        if benchmark.recognise is not None
        for root in benchmark.recognise(folder)
    }
    if not found:
        return None
    root = _only(folder, list(found))
    return _read(found[root], root)


def _only(folder: Path, found: list[Path]) -> Path:
    if len(found) > 1:
        finding = f"it holds several data sets, {found[0].name} and {found[1].name}"
        raise UserError(Code.BENCHMARK_MISMATCH, folder, finding, "name the folder of one of them")
    return found[0]


def _read(benchmark: Benchmark, root: Path) -> Dataset:
    dataset = benchmark.read(root)
    if not dataset.of("labeled"):
        raise dataset.problems[0]
    return dataset
