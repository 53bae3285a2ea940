"""Measure the last layer of the 2-D network on this GPU, with cuDNN and with our kernels.

    python benchmarks/logits.py

The layer maps 16 bfloat16 channels to 4 classes in float32. The script prints the time of cuDNN, including a float32
copy of the features, and the times of our kernels for several block sizes, fastest first. Twenty calls are captured in
one CUDA graph, so that launch times are not measured.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.networks import logits_triton

SHAPE, CLASSES = (12, 16, 256, 256), 4
CALLS, REPEATS = 20, 5


def main() -> None:
    """Measure the forward pass and the gradients."""
    torch.backends.cudnn.benchmark = True

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda").contiguous(memory_format=torch.channels_last)

    x, w, b = drawn(*SHAPE).bfloat16(), drawn(CLASSES, SHAPE[1], 3, 3) / 12, torch.randn(CLASSES, device="cuda")
    dy = drawn(SHAPE[0], CLASSES, *SHAPE[2:])

    def cudnn_gradients() -> object:
        one, none = [1, 1], [0, 0]
        return torch.ops.aten.convolution_backward(
            dy, x.float(), w, [CLASSES], one, one, one, False, none, 1, [True] * 3
        )

    show("forward", lambda: F.conv2d(x.float(), w, b, padding=1), partial(logits_triton.logits, x, w, b))
    show("all gradients", cudnn_gradients, partial(logits_triton.logits_gradients, dy, x, w))


def show(direction: str, reference: Callable[[], object], ours: Callable[..., object]) -> None:
    """Print a line for cuDNN and a line for each block size of our kernel."""
    print(f"{direction}: cuDNN {milliseconds(reference):.3f} ms", flush=True)
    times = sorted((milliseconds(partial(ours, **settings)), str(settings)) for settings in blocks())
    for ms, settings in times:
        print(f"{direction}: ours {ms:.3f} ms with {settings}")


def blocks() -> Iterator[dict[str, int]]:
    """Yield the block sizes to try."""
    for pixels, warps, stages in itertools.product((32, 64, 128, 256), (4, 8), (1, 2, 3)):
        yield {"BM": pixels, "num_warps": warps, "num_stages": stages}


def milliseconds(run: Callable[[], object]) -> float:
    """Return the time of one call on the device, as the median of a few replays."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            run()
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / CALLS)
    return sorted(times)[REPEATS // 2]


if __name__ == "__main__":
    main()
