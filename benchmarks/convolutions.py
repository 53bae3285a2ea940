"""Measure 3x3x3 convolutions with few channels on this GPU, with cuDNN and with both kinds of our kernels.

    python benchmarks/convolutions.py [bfloat16|float32]

For each layer and direction, the script prints the time of cuDNN and the five fastest settings of our kernels. One
process per layer compiles the kernels. Then one process at a time measures, so that nothing else runs on the GPU.
"""

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.nn import functional as F

LAYERS = {
    "LA 1-16": (4, 1, 16, (112, 112, 80)),
    "LA 16-16": (4, 16, 16, (112, 112, 80)),
    "LA 32-32": (4, 32, 32, (56, 56, 40)),
}
REPEATS = 15


def main() -> None:
    """Run one process for each layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("precision", nargs="?", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--layer", choices=LAYERS)
    parser.add_argument("--turn", type=Path)
    arguments = parser.parse_args()
    if arguments.layer:
        measure(arguments.layer, getattr(torch, arguments.precision), arguments.turn)
        return
    with TemporaryDirectory() as folder:
        base = [sys.executable, __file__, arguments.precision, "--turn", folder]
        processes = [subprocess.Popen([*base, "--layer", layer]) for layer in LAYERS]
        for process in processes:
            process.wait()


def measure(layer: str, dtype: torch.dtype, turn: Path) -> None:
    """Compile all kernels of a layer, wait for the other processes, then measure while no other process does."""
    torch.backends.cudnn.benchmark = True
    directions = list(directions_of(layer, dtype))
    compiled = turn / f"{list(LAYERS).index(layer)}.compiled"
    for _, reference, candidates in directions:
        reference()
        for name, run in list(candidates.items()):
            try:
                run()
            except Exception as error:
                candidates.pop(name)
                print(f"{layer}: {name} left out ({str(error)[:60]})", flush=True)
    torch.cuda.synchronize()
    compiled.touch()
    while len(list(turn.glob("*.compiled"))) < len(LAYERS):
        time.sleep(0.1)
    while len(list(turn.glob("*.measured"))) < list(LAYERS).index(layer):
        time.sleep(0.05)
    for direction, reference, candidates in directions:
        expected = reference().float()
        times = sorted((median(run), name, difference(run(), expected)) for name, run in candidates.items())
        best = "; ".join(f"{name} {ms:.3f} ({error:.0e})" for ms, name, error in times[:5])
        print(
            f"{layer} {str(dtype).removeprefix('torch.')} {direction}: cuDNN {median(reference):.3f} ms; {best}",
            flush=True,
        )
    (turn / f"{list(LAYERS).index(layer)}.measured").touch()


Run = Callable[[], Tensor]


def directions_of(layer: str, dtype: torch.dtype) -> Iterator[tuple[str, Run, dict[str, Run]]]:
    """Yield each direction (forward, input gradient, weight gradient) with cuDNN's function and ours by settings."""
    from graftseg.networks import convolution_pairs as pairs
    from graftseg.networks import convolution_triton as gathers

    batch, entry, out, space = LAYERS[layer]

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda", dtype=dtype).contiguous(memory_format=torch.channels_last_3d)

    x, dy = drawn(batch, entry, *space), drawn(batch, out, *space)
    w = drawn(out, entry, 3, 3, 3) / (entry * 27) ** 0.5
    turned = w.flip(2, 3, 4).transpose(0, 1)

    def gradient(*mask: bool) -> tuple[Tensor, ...]:
        one, none = [1] * 3, [0] * 3
        found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            dy, x, w, None, one, one, one, False, none, 1, [*mask, False]
        )
        return found

    def candidates(name: str, channels: int, *tensors: Tensor) -> dict[str, Run]:
        settings = itertools.product((64, 128, 256), (4, 8), (1, 2, 3))
        gathered = [{"BM": m, "num_warps": n, "num_stages": s} for m, n, s in settings]
        # with a single channel, there are no neighboring channels to read together
        paired = [s | {"planes": planes} for s in gathered for planes in (14, 28, 56)] if channels > 1 else []
        return {f"gather {label(s)}": partial(getattr(gathers, name), *tensors, **s) for s in gathered} | {
            f"pairs {label(s)}": partial(getattr(pairs, name), *tensors, **s) for s in paired
        }

    yield "forward", lambda: F.conv3d(x, w, padding=1), candidates("convolve", entry, x, w)
    if entry > 1:
        yield "input", lambda: gradient(True, False)[0], candidates("convolve", out, dy, turned)
    yield "weight", lambda: gradient(False, True)[1], candidates("convolve_weight", entry, x, dy)


def label(settings: dict[str, int]) -> str:
    """Return the settings as short text."""
    return "/".join(str(value) for value in settings.values())


def median(run: Run) -> float:
    """Return the median time of a function on the device in milliseconds."""
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[REPEATS // 2]


def difference(found: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference, relative to the norm of the expected result."""
    return float((found.float() - expected).norm() / expected.norm())


if __name__ == "__main__":
    main()
