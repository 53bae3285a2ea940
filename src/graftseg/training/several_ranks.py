"""Training with several ranks: checks before the start, averages of gradients, and different dropout on each rank."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from graftseg.core import ranks, torchrun
from graftseg.core.errors import Code, UserError, in_one_line
from graftseg.core.files import check_target_file, make_folder
from graftseg.core.reading import read_text
from graftseg.core.run_folder import LOCK, RunFolder
from graftseg.methods import METHODS, Method
from graftseg.networks.layers import use_local_statistics
from graftseg.recipes.recipe import Recipe

BUCKET_BYTES = 8 << 20
"""Size of the collected gradients at which they are sent. What is left at the end of backward is sent then."""
logger = logging.getLogger(__name__)


def check_batches(recipe: Recipe, count: int) -> None:
    """Raise a UserError if a batch cannot be divided among ``count`` ranks so that every rank has the same work."""
    batches = recipe.batches
    if count == 1:
        return
    remedy = f"use another number of devices, or start a run whose batches divide by {count}"
    for name, size in (("labeled", batches.labeled), ("unlabeled", batches.unlabeled)):
        if size % count:
            finding = f"{size} images cannot be divided among {count} devices"
            raise UserError(Code.RECIPE_MISMATCH, f"batches.{name}", finding, remedy)
    sizes = {"labeled": batches.labeled // count, "unlabeled": batches.unlabeled // count}
    for stage in recipe.stages:
        method = METHODS[stage.method]
        try:
            method.check(method.Config.model_validate(stage.settings), patch=batches.patch, **sizes)
        except ValueError as error:
            share = f"each of {count} devices gets {sizes['labeled']} labeled and {sizes['unlabeled']} unlabeled images"
            finding = f"{share}, which {stage.method} does not accept ({error})"
            raise UserError(Code.RECIPE_MISMATCH, "batches", finding, remedy) from None


def begin_or_detect_restart(run: RunFolder) -> bool:
    """Begin a new run of several ranks, or return whether torchrun restarted the ranks of this run.

    A new run gets a lock file with the name of this launch, which restarts by torchrun do not change. A lock file with
    the same name therefore shows a restart. The caller then resumes the run, even without ``--resume``.
    """
    return bool(ranks.on_main(partial(_begin_or_detect_restart, run))) if ranks.count() > 1 else False


def _begin_or_detect_restart(run: RunFolder) -> bool:
    if torchrun.restarts():
        logger.warning("%s: the ranks were restarted (restart %d)", in_one_line(str(run.path)), torchrun.restarts())
    if run.is_free:
        make_folder(run.path)
        check_target_file(run.path / LOCK)
        (run.path / LOCK).write_text(torchrun.launch_name())
        return False
    lock = run.path / LOCK
    return lock.is_file() and read_text(lock) == torchrun.launch_name()


class RankStep:
    """The part of a step that several ranks do together: averages of gradients, losses and running statistics.

    DistributedDataParallel expects one call of one module per step. Methods may call several networks, only parts of a
    network, or one network several times. So hooks of the parameters collect the gradients while backward runs. The
    order of gradients is the same on all ranks. Collected gradients are sent in buckets. With ``local`` batch
    statistics, the running statistics are averaged after each step.
    """

    def __init__(self, method: Method, device: torch.device, *, local: bool) -> None:
        self._buffers = [one for name, one in method.named_buffers() if "running_" in name] if local else []
        if local:
            use_local_statistics(method)
        self._dropout = _SeparateDropout(method, device)
        self._ready: list[Tensor] | None = None
        self._sent: list[_Bucket] = []
        self._averaged: set[int] = set()
        self._of_module: dict[str, set[int]] = {}
        for name in method.trained_modules:
            parameters = [one for one in method.get_submodule(name).parameters() if one.requires_grad]
            self._of_module[name] = {id(one) for one in parameters}
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(self._collect)  # type: ignore[no-untyped-call]

    def begin(self, stage: int, step: int) -> None:
        """Start a step."""
        self._dropout.begin(stage, step)

    @contextmanager
    def averaged_gradients(self, module: str) -> Iterator[None]:
        """Average the gradients of a module that backward computes inside the block."""
        self._ready, self._sent, self._averaged = [], [], self._of_module[module]
        yield
        self._send()
        self._ready = None
        for bucket in self._sent:
            bucket.finish()

    def _collect(self, parameter: Tensor) -> None:
        if self._ready is None or id(parameter) not in self._averaged or parameter.grad is None:
            return
        self._ready.append(parameter.grad)
        if sum(gradient.nbytes for gradient in self._ready) >= BUCKET_BYTES:
            self._send()

    def _send(self) -> None:
        if self._ready:
            self._sent.append(_Bucket(self._ready))
            self._ready = []

    @torch.no_grad()
    def end(self, values: Tensor) -> Tensor:
        """Return the mean of the loss values over ranks, and average the running statistics if they are local."""
        parts = [values, *self._buffers]
        joined = torch.cat([part.float().flatten() for part in parts])
        ranks.sum_now(joined)
        mean, *others = _split(joined / ranks.count(), parts)
        if others:
            torch._foreach_copy_(self._buffers, others)
        return mean


class _Bucket:
    """Gradients that are summed over ranks in the background."""

    def __init__(self, gradients: Sequence[Tensor]) -> None:
        self._gradients = list(gradients)
        self._sum = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._wait = ranks.start_sum(self._sum)

    def finish(self) -> None:
        """Wait for the sum, and replace the gradients by their mean."""
        self._wait()
        torch._foreach_copy_(self._gradients, _split(self._sum / ranks.count(), self._gradients))


class _SeparateDropout:
    """Random numbers for dropout that differ between ranks; all other random numbers are equal on all ranks.

    The numbers for dropout depend only on seed, stage, step and rank, so a checkpoint needs no random state of other
    ranks.
    """

    def __init__(self, method: nn.Module, device: torch.device) -> None:
        self._device, self._state, self._outer = device, torch.empty(0), torch.empty(0)
        for part in method.modules():
            if isinstance(part, _DropoutNd):
                part.register_forward_pre_hook(self._enter)
                part.register_forward_hook(self._leave)

    def begin(self, stage: int, step: int) -> None:
        """Draw new random numbers for a step."""
        key = (torch.initial_seed(), stage, step, ranks.rank())
        seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
        self._state = torch.Generator(self._device).manual_seed(seed).get_state()

    def _enter(self, module: nn.Module, inputs: object) -> None:
        if module.training:
            self._outer = self._exchange(self._state)

    def _leave(self, module: nn.Module, inputs: object, output: object) -> None:
        if module.training:
            self._state = self._exchange(self._outer)

    def _exchange(self, state: Tensor) -> Tensor:
        """Set the state of the random numbers on the device, and return the previous state."""
        if self._device.type == "cuda":
            before = torch.cuda.get_rng_state(self._device)
            torch.cuda.set_rng_state(state, self._device)
        else:
            before = torch.get_rng_state()
            torch.set_rng_state(state)
        return before


def _split(joined: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """Split a flat tensor into parts with the shapes of ``parts``."""
    pieces = joined.split_with_sizes([prod(part.shape) for part in parts])
    return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]
