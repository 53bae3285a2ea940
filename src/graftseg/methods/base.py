"""Base class of all methods."""

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
    """Base class of methods; a method turns each batch into objectives to minimize.

    All persistent state is in sub-modules and buffers, so ``state_dict()`` is the complete checkpoint of a method. The
    training loop owns the optimizers.

    - ``trained_modules``: names of the sub-modules that get an optimizer.
    - ``default_optimizers``: optimizer settings of sub-modules for which the recipe has none.
    - ``uses_unlabeled``: whether the method needs unlabeled images.
    - ``capturable``: whether a CUDA graph can capture a step: no host synchronization, no data-dependent shapes.
    - ``compiled_functions``: names of attributes to compile together with the networks.
    - ``min_patch_side``: smallest allowed patch size along each axis, in voxels.
    - ``supervises_levels``: whether the losses use ``network.deep_supervision``.
    - ``min_precision``: ``float32`` means that the method computes in float32 even if the recipe asks for bf16.
    """

    Config: ClassVar[type[Settings]] = Settings
    trained_modules: ClassVar[tuple[str, ...]] = ("student",)
    default_optimizers: ClassVar[Mapping[str, Sgd | Adam]] = {}
    uses_unlabeled: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    compiled_functions: ClassVar[tuple[str, ...]] = ()
    min_patch_side: ClassVar[int] = 1
    supervises_levels: ClassVar[bool] = False
    min_precision: ClassVar[Precision] = "bf16"

    student: nn.Module

    def __init__(self, config: Any, networks: Networks) -> None:
        super().__init__()
        self.config, self.dimensions = config, networks.dimensions
        self.student = self.build_student(networks)

    def build_student(self, networks: Networks) -> nn.Module:
        """Build the student, which turns images into logits. Override this to add heads, branches or decoders."""
        return networks.build()

    @classmethod
    def check(cls, config: Any, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Raise a ValueError if the settings, the batch sizes or the patch do not fit the method."""
        if min(patch) < cls.min_patch_side:
            raise ValueError(
                f"batches.patch has a side of {min(patch)}, but the method needs at least {cls.min_patch_side}"
            )
        if cls.uses_unlabeled and unlabeled == 0:
            raise ValueError("batches.unlabeled is 0, but the method needs unlabeled images")

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield objectives to minimize. The training loop updates parameters after each objective."""
        raise NotImplementedError

    def segment(self, images: Tensor) -> Tensor:
        """Return probabilities ``(B, classes, *space)`` of the student."""
        return self.student(images).float().softmax(1)  # type: ignore[no-any-return]

    def after_step(self, now: Progress) -> None:
        """Update state that is not trained by gradients, such as a teacher. The default does nothing."""

    def finish(self) -> None:
        """Change the student after the last step of the stage. The default does nothing."""

    def start_from(self, previous: "Method") -> None:
        """Load the student of the previous stage: all tensors with the same name and shape."""
        own, earlier = self.student.state_dict(), previous.student.state_dict()
        shared = {name: value for name, value in earlier.items() if name in own and own[name].shape == value.shape}
        if not shared:
            raise ValueError("the students of the two stages share no parameter")
        self.student.load_state_dict(own | shared)

    def accelerate(self) -> None:
        """Compile the networks and ``compiled_functions``; results are equal up to rounding."""
        options = self.compiler_options
        for part in self.children():
            part.compile(dynamic=False, options=options)
        for name in self.compiled_functions:
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False, options=options))

    @property
    def compiler_options(self) -> dict[str, Any] | None:
        """Options for ``torch.compile`` of all parts of a step."""
        return compiler_options(self.dimensions, next(self.parameters()).device)

    def preview_labels(self, images: Tensor) -> Tensor | None:
        """Return pseudo-labels ``(B, *space)`` for display, or None if the method makes none."""
        return None
