"""The contract that every method keeps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Precision, Progress
from graftseg.networks import Networks
from graftseg.networks.acceleration import compiler_options
from graftseg.ops.optimizers import Adam, Sgd


class Method(nn.Module):
    """Base class: mixes a batch and yields the objectives to minimize.

    All persistent state is in sub-modules and buffers, so ``state_dict()`` is the complete checkpoint of a method. The
    training loop owns the optimizers.

    - ``trained_modules``: names of the sub-modules that get an optimizer.
    - ``default_optimizers``: optimizer settings of sub-modules for which the recipe gives none.
    - ``uses_unlabeled``: whether the method needs unlabeled images.
    - ``capturable``: false if a step synchronizes with the host or has data-dependent shapes.
    - ``compiled_functions``: names of attributes to compile together with the networks.
    - ``min_patch_side``: smallest allowed patch size along each axis, in voxels.
    - ``min_precision``: ``float32`` overrides a recipe that asks for bf16.
    """

    Config: ClassVar[type[Settings]] = Settings
    trained_modules: ClassVar[tuple[str, ...]] = ("student",)
    default_optimizers: ClassVar[Mapping[str, Sgd | Adam]] = {}
    uses_unlabeled: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    compiled_functions: ClassVar[tuple[str, ...]] = ()
    min_patch_side: ClassVar[int] = 1
    min_precision: ClassVar[Precision] = "bf16"

    student: nn.Module

    def __init__(self, config: Any, networks: Networks) -> None:
        super().__init__()
        self.config, self.dimensions = config, networks.dimensions
        self.student = self.build_student(networks)

    def build_student(self, networks: Networks) -> nn.Module:
        """The network that ships, from images to logits: the recipe's, unless the method needs more of it."""
        return networks.build()

    @classmethod
    def check(cls, config: Any, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Raise a ValueError if the method cannot work with such batches: so many images of such a size."""
        if min(patch) < cls.min_patch_side:
            raise ValueError(
                f"batches.patch has a side of {min(patch)} and the method needs {cls.min_patch_side} at least"
            )
        if cls.uses_unlabeled and unlabeled == 0:
            raise ValueError("batches.unlabeled is 0 and the method learns from unlabeled images")

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield what to minimise; the engine makes the update before it asks for the next."""
        raise NotImplementedError

    def segment(self, images: Tensor) -> Tensor:
        """Probabilities ``(B, K, *space)`` of the network that ships: the student."""
        return self.student(images).float().softmax(1)  # type: ignore[no-any-return]

    def after_step(self, now: Progress) -> None:
        """What follows the update: a teacher's average, a memory bank. By default nothing."""

    def start_from(self, previous: "Method") -> None:
        """Begin with the student of the stage before; parts that it does not have stay as they are."""
        own, before = self.student.state_dict(), previous.student.state_dict()
        shared = {name: value for name, value in before.items() if name in own and own[name].shape == value.shape}
        if not shared:
            raise ValueError("the students of two stages have nothing in common")
        self.student.load_state_dict(own | shared)

    def accelerate(self) -> None:
        """Compile the networks and the hot functions; what they compute stays the same up to rounding."""
        options = self.compiler_options
        for part in self.children():
            part.compile(dynamic=False, options=options)
        for name in self.compiled_functions:
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False, options=options))

    @property
    def compiler_options(self) -> dict[str, Any] | None:
        """What to ask of the compiler for whatever is part of a step."""
        return compiler_options(self.dimensions, next(self.parameters()).device)

    def preview_labels(self, images: Tensor) -> Tensor | None:
        """Pseudo-labels ``(B, *space)`` for a person to look at, or None where a method makes none."""
        return None
