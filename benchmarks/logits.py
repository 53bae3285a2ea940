"""Times of the 2-D head on this GPU, 16 bfloat16 channels to 4 classes in float32: cuDNN, and our kernels.

    python benchmarks/logits.py

It prints cuDNN's time, that of a copy of the features in float32 included, and ours by the sizes of blocks, fastest
first. Every time is that of a call within a captured graph of twenty, so that launches do not count.
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
    """Time both directions."""
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
    """One line for cuDNN and one for each setting of ours."""
    print(f"{direction}: cuDNN {milliseconds(reference):.3f} ms", flush=True)
    times = sorted((milliseconds(partial(ours, **settings)), str(settings)) for settings in blocks())
    for ms, settings in times:
        print(f"{direction}: ours {ms:.3f} ms with {settings}")


def blocks() -> Iterator[dict[str, int]]:
    """Sizes of blocks that are tried."""
    for pixels, warps, stages in itertools.product((32, 64, 128, 256), (4, 8), (1, 2, 3)):
        yield {"BM": pixels, "num_warps": warps, "num_stages": stages}


def milliseconds(run: Callable[[], object]) -> float:
    """Of one call on the device, the median of a few replays."""
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
