"""Features of the last decoder layer at sampled voxels of the training scans of a run, by class."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from graftseg.core.errors import Code, UserError
from graftseg.core.progress import track
from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import training_cases
from graftseg.data.grid import Grid
from graftseg.data.store import StoredCase, find_store, open_store
from graftseg.inference.label_maps import LABELS_ONLY, clean_labels
from graftseg.inference.model import TrainedNetwork, load_network
from graftseg.inference.predictor import Predictor
from graftseg.inference.resampling import stretched, stretched_slabs
from graftseg.inference.sliding_window import is_slicewise, probability_slabs
from graftseg.networks.branches import Tail

Features = npt.NDArray[np.float32]
HIDDEN_REMEDY = "omit --hidden-labels, or train on a store that was prepared with these labels"


@dataclass(frozen=True)
class RunFeatures:
    """Features of sampled voxels of a run."""

    classes: tuple[str, ...]  # names of the classes, background first
    labeled: dict[int, Features]  # features ``(n, channels)`` from labeled scans, by label value
    unlabeled: dict[int, Features]  # features ``(n, channels)`` from unlabeled scans, by label value
    scans: tuple[int, int]  # number of labeled and of unlabeled scans


def sample_features(
    run: RunFolder, device: torch.device, voxels: int, seed: int, hidden_labels: bool = False
) -> RunFeatures:
    """Sample about ``voxels`` voxels of every class from the labeled scans of a run, and as many from unlabeled scans.

    Voxels of labeled scans are grouped by their true label. Voxels of unlabeled scans are grouped by the prediction of
    the run or, with ``hidden_labels``, by labels in the store that training did not use. Scans with enough voxels of a
    class contribute equal numbers.
    """
    network, store = load_network(run, device), open_store(find_store(run, "restore the store of the run"))
    cases = training_cases(store, network.recipe.batches)
    unlabeled = [case for case in cases.unlabeled if case.label is not None] if hidden_labels else cases.unlabeled
    if not unlabeled:
        finding = "no unlabeled scan has a label in the store" if hidden_labels else "the run has no unlabeled scans"
        remedy = HIDDEN_REMEDY if hidden_labels else "choose a run whose data has unlabeled scans"
        raise UserError(Code.TOO_FEW_CASES, store.path, finding, remedy)

    def collect(chosen: Sequence[StoredCase], split: int, uses_labels: bool) -> dict[int, Features]:
        collected: dict[int, list[Features]] = {label: [] for label in range(1, len(store.classes))}
        quota = -(-voxels // len(chosen))
        for number, case in enumerate(track(chosen, f"Features of {run.path.name}", len(chosen))):
            image = torch.from_numpy(store.read_image(case))
            labels = torch.from_numpy(store.read_label(case)) if uses_labels else predicted_labels(network, image, case)
            rng = np.random.default_rng((seed, split, number))
            for label, features in features_at(network, image, labels, quota, rng).items():
                collected[label].append(features)
        return {label: np.concatenate(parts) for label, parts in collected.items()}

    sizes = len(cases.labeled), len(unlabeled)
    return RunFeatures(store.classes, collect(cases.labeled, 0, True), collect(unlabeled, 1, hidden_labels), sizes)


def features_at(
    network: TrainedNetwork, image: Tensor, labels: Tensor, quota: int, rng: np.random.Generator
) -> dict[int, Features]:
    """Return features of at most ``quota`` random voxels of every class of a scan ``(C, *space)``, by label value."""
    ordered, slabs = _slabs(network, image, labels)
    flat = ordered.reshape(-1)
    chosen: dict[int, npt.NDArray[np.int64]] = {}
    for label in range(1, len(network.classes)):
        places = np.flatnonzero(flat == label)
        chosen[label] = np.sort(rng.choice(places, min(quota, len(places)), replace=False))
    parts: dict[int, list[Features]] = {label: [] for label in chosen}
    plane = int(np.prod(ordered.shape[1:]))
    channels = 0
    for begin, slab in slabs:
        channels, first, last = slab.shape[0], begin * plane, (begin + slab.shape[1]) * plane
        for label, places in chosen.items():
            inside = torch.from_numpy(places[(places >= first) & (places < last)] - first).to(slab.device)
            parts[label].append(slab.reshape(channels, -1)[:, inside].T.cpu().numpy())
    empty = np.empty((0, channels), np.float32)
    return {label: np.concatenate([empty, *of_slabs]) for label, of_slabs in parts.items()}


def predicted_labels(network: TrainedNetwork, image: Tensor, case: StoredCase) -> Tensor:
    """Return the label map that the run predicts for a prepared scan, on the prepared grid."""
    recipe, classes = network.recipe, len(network.classes)
    settings = recipe.inference.uncleaned()
    predictor = Predictor.for_recipe(recipe, network.method.segment, classes, network.device, settings)
    labels = predictor.prepared_maps(image, Grid.identity(case.shape), LABELS_ONLY).labels
    return clean_labels(labels, recipe.inference, classes, case.grid.prepared_voxel_ml).cpu()


def feature_network(student: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a function from images to the input of the head: features ``(B, channels, *space)``."""
    head = student.get_submodule("head")
    last = head.logits if isinstance(head, Tail) else head

    def features(images: Tensor) -> Tensor:
        seen: list[Tensor] = []
        handle = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            student(images)
        finally:
            handle.remove()
        return seen[0].float()

    return features


def _slabs(
    network: TrainedNetwork, image: Tensor, labels: Tensor
) -> tuple[npt.NDArray[np.uint8], Iterator[tuple[int, Tensor]]]:
    """Return the labels with the slab axis first, and slabs of features on the same voxels.

    Where windows overlap, features are averaged like the probabilities of a prediction.
    """
    segment, patch, device = feature_network(network.method.student), network.patch, network.device
    settings = network.recipe.inference.model_copy(update={"stride": None, "flips": False})
    is_volume = is_slicewise(image, patch)
    if network.recipe.batches.fit == "stretch":
        volume, slices = (image, labels) if is_volume else (image[..., None], labels[..., None])
        ordered = stretched(slices.movedim(-1, 0), patch)
        return ordered.numpy(), stretched_slabs(segment, volume, patch, settings, device=device)
    ordered = labels.movedim(-1, 0) if is_volume else labels
    return ordered.contiguous().numpy(), probability_slabs(segment, image, patch, settings, device=device)
