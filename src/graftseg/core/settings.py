"""The base class of all settings. Settings are frozen and reject unknown keys and booleans in place of numbers."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

MAX_STEPS = 10**9
"""Upper limit for steps, cases and folds."""
MAX_VOXELS = 2**16
"""Upper limit for the length of an axis in voxels."""
MAX_IMAGES = 2**16
"""Upper limit for images in a batch."""
Location = tuple[str | int, ...]
Voxels = Annotated[int, Field(gt=0, le=MAX_VOXELS)]
"""The length of an axis in voxels."""


class Settings(BaseModel):
    """Base class of settings. Each module defines its settings, and a recipe combines the settings of all modules."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _reject_booleans_as_numbers(cls, given: Any) -> Any:
        """Reject ``true`` and ``false`` for numbers. Pydantic's strict mode is not used: it rejects lists as tuples."""
        known = cls.model_fields.items() if isinstance(given, Mapping) else ()
        found = [
            InitErrorDetails(type=_not_a_number(value), loc=location, input=value)
            for name, field in known
            for location, value in _booleans_for_numbers((name,), given.get(name), _alternatives(field.annotation))
        ]
        if found:
            raise ValidationError.from_exception_data(cls.__name__, found)
        return given


def _not_a_number(value: bool) -> PydanticCustomError:
    return PydanticCustomError("truth", "should be a number, not {truth}", {"truth": str(value).lower()})


def _booleans_for_numbers(location: Location, value: Any, kinds: list[Any]) -> Iterator[tuple[Location, bool]]:
    """Yield location and value of each boolean whose allowed types (``kinds``) include a number type but not bool."""
    if isinstance(value, bool) and bool not in kinds and (int in kinds or float in kinds):
        yield location, value
    elif isinstance(value, list | tuple):
        parts = [part for kind in kinds if get_origin(kind) in (tuple, list) for part in get_args(kind)]
        inner = [kind for part in parts for kind in _alternatives(part)]
        for index, item in enumerate(value):
            yield from _booleans_for_numbers((*location, index), item, inner)


def _alternatives(kind: Any) -> list[Any]:
    """Return the types that a setting may have, without annotations."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [one for part in get_args(kind) for one in _alternatives(part)]
    return [kind]
