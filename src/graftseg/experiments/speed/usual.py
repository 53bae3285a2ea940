"""The usual implementation of a step of bidirectional copy-paste and of its data loader, as in published scripts.

The step computes the same loss as this package, in float32 without compilation, with torch's layers in the default
memory format. Scipy finds the largest components on the CPU for each sample and class. The optimizer is not fused, the
teacher is averaged parameter by parameter, and the loss is read at every step.

Worker processes of the loader read compressed h5 files and augment them with numpy: a worker reads a complete scan,
rotates and flips it, and crops a patch. A 2-D slice is resized to the patch with ``scipy.ndimage.zoom``. Unlabeled
scans are read in the same way, with empty label maps.
"""

import warnings
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from graftseg.core.packages import import_optional
from graftseg.core.types import Batch, Labeled, halves
from graftseg.data.augment import AugmentSettings, crop_padding
from graftseg.data.batches import BatchSettings, training_cases
from graftseg.data.store import Store, StoredCase
from graftseg.experiments.speed.instruments import PhaseSeconds, Stopwatch, synchronized_time
from graftseg.experiments.speed.subject import Subject
from graftseg.networks.acceleration import plain_layers
from graftseg.networks.ema import Scope, make_teacher
from graftseg.ops.components import chosen_classes
from graftseg.ops.losses import mixed_loss
from graftseg.ops.masks import copy_paste_mask, mix
from graftseg.ops.optimizers import build_optimizer, learning_rate
from graftseg.ops.pseudo_labels import decide

WORKERS = 4
UNLABELED_SCANS = 24
"""Number of unlabeled scans that are written. It does not affect the time of a step, because each batch is read from
disk."""
Array = npt.NDArray[Any]


class UsualTrainer:
    """Student, teacher and optimizer, with a training step."""

    def __init__(self, subject: Subject) -> None:
        torch.manual_seed(subject.recipe.seed)
        self.config, self.settings, self.device = subject.config, subject.stage.optimizer, subject.device
        self.student = subject.networks.build().to(subject.device).train()
        self.teacher = make_teacher(self.student)
        self.optimizer = build_optimizer(self.student, self.settings, fused=None)
        self.watch: Stopwatch | None = None

    def step(self, batches: Iterator[Batch], step: int, total: int) -> float:
        """Load a batch, update student and teacher, and return the loss."""
        with self._phase("batch"):
            batch = next(batches)
        with self._phase("student forward"):
            loss = self.loss(batch)
        with self._phase("backward"):
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        with self._phase("update"):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.settings, step, total)
                if self.settings.clip_gradient is not None:
                    nn.utils.clip_grad_norm_(group["params"], self.settings.clip_gradient)
            self.optimizer.step()
            average(self.teacher, self.student, self.config.ema_decay, self.config.ema_scope)
            return float(loss.detach())

    def loss(self, batch: Batch) -> Tensor:
        """Return ``L_in + L_out``, with one forward pass for each."""
        i, j = batch.labeled.halves()
        u_p, u_q = halves(batch.unlabeled)
        p_p, p_q = self._pseudo_label(u_p), self._pseudo_label(u_q)
        M = copy_paste_mask(i.labels.shape[1:], self.config.beta, self.device)
        alpha = self.config.alpha
        L_in = self._mixed_loss(mix(j.images, u_p, M), j.labels, p_p, M, (1, alpha))
        L_out = self._mixed_loss(mix(u_q, i.images, M), p_q, i.labels, M, (alpha, 1))
        return L_in + L_out

    @torch.no_grad()
    def _pseudo_label(self, images: Tensor) -> Tensor:
        with self._phase("teacher"):
            probabilities = self.teacher(images).softmax(1)
            labels = decide(probabilities, self.config.decision)
        if not self.config.largest_component:
            return labels
        with self._phase("components"):
            only = chosen_classes(self.config.largest_component)
            return components(labels, probabilities.shape[1], self.config.connectivity, only)

    def _mixed_loss(
        self, X: Tensor, background: Tensor, foreground: Tensor, M: Tensor, weights: tuple[float, float]
    ) -> Tensor:
        logits, dice, legacy = self.student(X), self.config.dice, self.config.legacy_background_mask
        return mixed_loss(logits, background, foreground, M, weights, dice=dice, legacy_background_mask=legacy)

    def _phase(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.watch is None else self.watch.phase(name)


def components(labels: Tensor, classes: int, connectivity: int | None, only: Collection[int] | None = None) -> Tensor:
    """Keep the largest component of each sample and class, found by scipy. Classes not in ``only`` stay unchanged."""
    kept = torch.zeros_like(labels)
    for sample in range(len(labels)):
        host = labels[sample].cpu().numpy()
        structure = ndimage.generate_binary_structure(host.ndim, connectivity or host.ndim)
        result = np.zeros_like(host)
        for value in range(1, classes):
            members = host == value
            result[members if only is not None and value not in only else _largest(members, structure)] = value
        kept[sample] = torch.from_numpy(result).to(labels.device)
    return kept


@torch.no_grad()
def average(teacher: nn.Module, student: nn.Module, decay: float, scope: Scope) -> None:
    """Update the teacher by eq. (10) of the paper, one tensor at a time."""
    for parameter, source in zip(teacher.parameters(), student.parameters(), strict=True):
        parameter.mul_(decay).add_(source, alpha=1 - decay)
    if scope == "state":
        for buffer, new in zip(teacher.buffers(), student.buffers(), strict=True):
            buffer.copy_(decay * buffer + (1 - decay) * new)


def time_whole(trainer: UsualTrainer, batches: Iterator[Batch], warm_up: int, steps: int) -> float:
    """Return the seconds per step, including data loading."""
    total = warm_up + steps
    with _script_settings():
        for step in range(warm_up):
            trainer.step(batches, step, total)
        begin = synchronized_time(trainer.device)
        for step in range(warm_up, total):
            trainer.step(batches, step, total)
        return (synchronized_time(trainer.device) - begin) / steps


def time_phases(trainer: UsualTrainer, batches: Iterator[Batch], steps: int) -> PhaseSeconds:
    """Return the seconds per step of each phase. The phase ``batch`` includes waiting for the loader and copying."""
    trainer.watch = Stopwatch(trainer.device)
    with _script_settings():
        for step in range(steps):
            trainer.step(batches, step, steps)
    seconds, trainer.watch = trainer.watch.per_step(steps), None
    return seconds


def _largest(mask: npt.NDArray[np.bool_], structure: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    numbered, count = ndimage.label(mask, structure)
    if not count:
        return mask
    largest: npt.NDArray[np.bool_] = numbered == np.bincount(numbered.ravel())[1:].argmax() + 1
    return largest


@contextmanager
def _script_settings() -> Iterator[None]:
    """Use deterministic convolutions and torch's default for TF32, as the published scripts do."""
    cudnn = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True)
    with plain_layers(), cudnn:
        yield


class Files:
    """The training scans as h5 files, one file per volume, or per slice for a 2-D recipe."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        cases = training_cases(subject.store, subject.recipe.batches)
        axes = subject.recipe.data.dimensions
        self.labeled = _write(subject.store, cases.labeled, folder / "labeled", axes, labels=True)
        unlabeled = cases.unlabeled[:UNLABELED_SCANS]
        self.unlabeled = _write(subject.store, unlabeled, folder / "unlabeled", axes, labels=False)

    def streams(self, settings: BatchSettings) -> "TwoStreams":
        """Return the sampler of batches."""
        return TwoStreams(len(self.labeled), len(self.unlabeled), (settings.labeled, settings.unlabeled))


class H5Scans(Dataset[tuple[Tensor, Tensor]]):
    """Data set of augmented patches: image ``(C, *patch)`` float32 and label map ``(*patch)`` int64."""

    def __init__(self, files: Sequence[Path], patch: Sequence[int], augment: AugmentSettings) -> None:
        self.files, self.patch, self.augment = files, patch, augment

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        with import_h5py().File(self.files[index], "r") as file:
            image, label = file["image"][:], file["label"][:]
        # torch seeds every worker differently
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        image, label = augmented(rng, image, label[None], self.patch, self.augment)
        return torch.from_numpy(image.astype(np.float32)), torch.from_numpy(label[0].astype(np.int64))


class TwoStreams(Sampler[list[int]]):
    """Sampler of batches. A batch begins with labeled indices. An epoch is one permutation of the labeled scans.

    The indices of labeled scans are below ``labeled``. When all unlabeled scans were used, they are permuted again.
    """

    def __init__(self, labeled: int, unlabeled: int, sizes: tuple[int, int]) -> None:
        self.labeled, self.unlabeled, self.sizes = labeled, unlabeled, sizes

    def __len__(self) -> int:
        return max(1, self.labeled // self.sizes[0])

    def __iter__(self) -> Iterator[list[int]]:
        first, second = self.sizes
        copies = ceil(first / self.labeled)
        labeled = np.random.permutation(np.tile(np.arange(self.labeled), copies))
        rounds = ceil(len(self) * second / self.unlabeled)
        unlabeled = np.concatenate([np.random.permutation(self.unlabeled) for _ in range(rounds)]) + self.labeled
        for step in range(len(self)):
            batch = (*labeled[step * first :][:first], *unlabeled[step * second :][:second])
            yield [int(index) for index in batch]


@contextmanager
def usual_batches(
    subject: Subject, files: Files, *, workers: int = WORKERS, persistent_workers: bool = False
) -> Iterator[Iterator[Batch]]:
    """Yield an endless iterator of batches. Without ``persistent_workers``, every epoch starts new processes."""
    settings = subject.recipe.batches
    scans = H5Scans([*files.labeled, *files.unlabeled], settings.patch, settings.augment)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        loader = DataLoader(
            scans,
            batch_sampler=files.streams(settings),
            num_workers=workers,
            pin_memory=subject.device.type == "cuda",
            persistent_workers=persistent_workers and workers > 0,
        )
        batches = _endless(loader, settings.labeled, subject.device)
        try:
            yield batches
        finally:
            batches.close()


def import_h5py() -> Any:
    """Return the h5py module. Raise if it is not installed."""
    return import_optional("h5py", "the usual data loader", remedy="run pip install h5py or add --no-usual")


def augmented(
    rng: np.random.Generator, image: Array, label: Array, patch: Sequence[int], settings: AugmentSettings
) -> tuple[Array, Array]:
    """Rotate by a multiple of 90 degrees and flip, rotate by a small angle, or do neither, at random.

    Then crop a volume or zoom a slice. Arrays are ``(C, *space)``.
    """
    if rng.random() < settings.rotate_flip:
        turns, axis = int(rng.integers(4)), 1 + int(rng.integers(2))
        image, label = (np.flip(np.rot90(array, turns, (1, 2)), axis) for array in (image, label))
    elif rng.random() < settings.rotate:
        angle = int(rng.integers(-settings.degrees, settings.degrees))
        image, label = (ndimage.rotate(array, angle, (1, 2), reshape=False, order=0) for array in (image, label))
    if len(patch) == 2:
        return _zoomed(image, patch), _zoomed(label, patch)
    return _cropped(rng, image, label, patch, settings.margin)


def _zoomed(array: Array, patch: Sequence[int]) -> Array:
    factors = [n / size for n, size in zip(patch, array.shape[1:], strict=True)]
    return np.stack([ndimage.zoom(channel, factors, order=0) for channel in array])


def _cropped(
    rng: np.random.Generator, image: Array, label: Array, patch: Sequence[int], margin: int
) -> tuple[Array, Array]:
    (padding,) = crop_padding(np.array([label.shape[1:]]), patch, margin)
    if padding.any():
        around = [(0, 0), *((n, n) for n in padding.tolist())]
        image, label = np.pad(image, around), np.pad(label, around)
    room = [max(size - n, 1) for size, n in zip(label.shape[1:], patch, strict=True)]
    start = rng.integers(room)
    box = (slice(None), *(slice(s, s + n) for s, n in zip(start.tolist(), patch, strict=True)))
    return image[box], label[box]


def _endless(
    loader: "DataLoader[tuple[Tensor, Tensor]]", labeled: int, device: torch.device
) -> Generator[Batch, None, None]:
    while True:
        for images, labels in loader:
            x, y = images.to(device), labels.to(device)
            yield Batch(Labeled(x[:labeled], y[:labeled]), x[labeled:])


def _write(store: Store, cases: Sequence[StoredCase], folder: Path, axes: int, *, labels: bool) -> list[Path]:
    """Write one h5 file per volume, or per slice for a 2-D recipe. Unlabeled cases get an empty label map."""
    h5py = import_h5py()
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for case in cases:
        image = np.asarray(store.image(case), dtype=np.float32)
        label = np.asarray(store.label(case)) if labels else np.zeros(image.shape[1:], np.uint8)
        parts: list[Any] = [(..., index) for index in range(label.shape[-1])] if label.ndim > axes else [...]
        for part in parts:
            path = folder / f"{len(paths):05d}.h5"
            with h5py.File(path, "w") as file:
                file.create_dataset("image", data=image[part], compression="gzip")
                file.create_dataset("label", data=label[part], compression="gzip")
            paths.append(path)
    return paths
