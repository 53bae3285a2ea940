"""Times of the 3x3x3 and 3x3 convolutions of the published networks on this GPU: cuDNN, our kernels, and a candidate.

    python benchmarks/convolutions.py [bfloat16|float32]

For each layer and direction it prints cuDNN's time and the fastest settings of each kernel. Kernels are compiled in
several processes first; then one process at a time measures, so that nothing else runs on the GPU.
"""

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))

LAYERS = {
    "LA 1-16": (4, 1, 16, (112, 112, 80)),
    "LA 16-16": (4, 16, 16, (112, 112, 80)),
    "LA 32-32": (4, 32, 32, (56, 56, 40)),
    "ACDC 16-16": (12, 16, 16, (256, 256)),
    "ACDC 32-16": (12, 32, 16, (256, 256)),
    "ACDC 32-32": (12, 32, 32, (128, 128)),
}
REPEATS = 15


def main() -> None:
    """Run one process for each layer, each waiting for its turn to measure."""
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
    """Compile everything, wait until all others have too, then measure alone."""
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
    """Forward, gradient of the input, gradient of the weight: cuDNN's, and ours by settings."""
    import planes_triton as planes

    from graftseg.networks import convolution_triton as gathers

    batch, entry, out, space = LAYERS[layer]
    axes = len(space)
    memory = torch.channels_last_3d if axes == 3 else torch.channels_last
    convolution: Any = F.conv3d if axes == 3 else F.conv2d

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda", dtype=dtype).contiguous(memory_format=memory)

    x, dy = drawn(batch, entry, *space), drawn(batch, out, *space)
    w = drawn(out, entry, *[3] * axes) / (entry * 3**axes) ** 0.5
    turned = w.flip(*range(2, 2 + axes)).transpose(0, 1)

    def gradient(*mask: bool) -> tuple[Tensor, ...]:
        one, none = [1] * axes, [0] * axes
        found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            dy, x, w, None, one, one, one, False, none, 1, [*mask, False]
        )
        return found

    settings = [
        {"BM": m, "num_warps": n, "num_stages": s} for m, n, s in itertools.product((64, 128, 256), (4, 8), (1, 2, 3))
    ]
    yield (
        "forward",
        lambda: convolution(x, w, padding=1),
        {
            **({f"gather {label(s)}": lambda s=s: gathers.convolve(x, w, **s) for s in settings} if axes == 3 else {}),
            **{f"planes {label(s)}": lambda s=s: planes.convolve(x, w, **s) for s in with_planes(settings, entry)},
        },
    )
    if entry > 1:
        yield (
            "input",
            lambda: gradient(True, False)[0],
            {
                **(
                    {f"gather {label(s)}": lambda s=s: gathers.convolve(dy, turned, **s) for s in settings}
                    if axes == 3
                    else {}
                ),
                **{
                    f"planes {label(s)}": lambda s=s: planes.convolve(dy, turned, **s)
                    for s in with_planes(settings, out)
                },
            },
        )
    yield (
        "weight",
        lambda: gradient(False, True)[1],
        {
            **(
                {f"gather {label(s)}": lambda s=s: gathers.convolve_weight(x, dy, **s) for s in settings}
                if axes == 3
                else {}
            ),
            **{
                f"planes {label(s)}": lambda s=s: planes.convolve_weight(x, dy, **s)
                for s in with_planes(settings, entry)
            },
        },
    )


def with_planes(settings: list[dict[str, int]], channels: int) -> list[dict[str, int]]:
    """The same with numbers of planes that a program walks; none for a single channel, which has no run to read."""
    if channels == 1:
        return []
    return [s | {"planes": planes} for s in settings for planes in (14, 28) if s["num_stages"] < 3 and s["BM"] < 256]


def label(settings: dict[str, int]) -> str:
    """Settings in short."""
    return "/".join(str(value) for value in settings.values())


def median(run: Run) -> float:
    """Milliseconds on the device."""
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[REPEATS // 2]


def difference(found: Tensor, expected: Tensor) -> float:
    """Relative to the size of the result."""
    return float((found.float() - expected).norm() / expected.norm())


if __name__ == "__main__":
    main()
