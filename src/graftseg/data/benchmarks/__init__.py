"""The published benchmarks: how to recognize and read their folders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from graftseg.core.errors import Code, UserError
from graftseg.data.benchmarks import acdc, la, pancreas
from graftseg.data.dataset import Dataset
from graftseg.data.folders import require_folder


@dataclass(frozen=True)
class Benchmark:
    """A published data set. ``find`` and ``recognize`` return all matching folders."""

    find: Callable[[Path], list[Path]]  # if the user named the benchmark
    recognize: Callable[[Path], list[Path]] | None  # if not; None if the layout is ambiguous
    read: Callable[[Path], Dataset]
    expected: str  # the files, for error messages
    dimensions: Literal[2, 3]
    classes: Mapping[int, str]


def _pancreas(protocol: pancreas.Protocol, recognize: Callable[[Path], list[Path]] | None) -> Benchmark:
    read = partial(pancreas.read_pancreas, protocol=protocol)
    return Benchmark(pancreas.find_numbered, recognize, read, pancreas.EXPECTED, 3, pancreas.CLASSES)


BENCHMARKS: dict[str, Benchmark] = {
    "la": Benchmark(la.find_la, la.find_la, la.read_la, la.EXPECTED, 3, la.CLASSES),
    "acdc": Benchmark(acdc.find_acdc, acdc.find_acdc, acdc.read_acdc, acdc.EXPECTED, 2, acdc.CLASSES),
    "pancreas": _pancreas("pancreas", pancreas.find_pancreas),
    "pancreas-62": _pancreas("pancreas-62", None),
}


def read_benchmark(name: str, folder: Path) -> Dataset:
    """Read the cases of a benchmark from its folder or from the parent of its folder."""
    if name not in BENCHMARKS:
        remedy = f"choose one of {', '.join(BENCHMARKS)}"
        raise UserError(Code.UNKNOWN_NAME, f"--benchmark {name}", "unknown benchmark", remedy)
    benchmark = BENCHMARKS[name]
    remedy = f"pass the folder with {benchmark.expected}"
    require_folder(folder, remedy)
    folders = benchmark.find(folder)
    if not folders:
        raise UserError(Code.BENCHMARK_MISMATCH, folder, f"not the folder of the benchmark {name}", remedy)
    return _read(benchmark, _only(folder, folders))


def classes_of(name: str) -> tuple[str, ...]:
    """Return the class names of a benchmark by label value, or an empty tuple for an unknown benchmark."""
    return tuple(BENCHMARKS[name].classes.values()) if name in BENCHMARKS else ()


def recognize_benchmark(folder: Path) -> Dataset | None:
    """Read the cases of the only benchmark in a folder or its subfolders. Return None if there is no benchmark."""
    recognizable = ((benchmark, benchmark.recognize) for benchmark in BENCHMARKS.values() if benchmark.recognize)
    benchmark_of = {root: benchmark for benchmark, recognize in recognizable for root in recognize(folder)}
    if not benchmark_of:
        return None
    root = _only(folder, list(benchmark_of))
    return _read(benchmark_of[root], root)


def _only(folder: Path, roots: list[Path]) -> Path:
    if len(roots) > 1:
        finding = f"contains several data sets, such as {roots[0].name} and {roots[1].name}"
        raise UserError(Code.BENCHMARK_MISMATCH, folder, finding, "pass the folder of one of them")
    return roots[0]


def _read(benchmark: Benchmark, root: Path) -> Dataset:
    dataset = benchmark.read(root)
    if not dataset.of("labeled"):
        raise dataset.problems[0]
    return dataset
