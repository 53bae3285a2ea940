"""The base class of all settings. Settings are frozen and reject unknown keys and booleans in place of numbers."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

MAX_STEPS = 10**9
"""Upper limit for numbers of steps, cases and folds."""
MAX_SIDE = 2**16
"""Upper limit for the length of an axis in voxels."""
MAX_IMAGES = 2**16
"""Upper limit for images in a batch."""
Location = tuple[str | int, ...]
Voxels = Annotated[int, Field(gt=0, le=MAX_SIDE)]
"""The length of an axis in voxels."""


class Settings(BaseModel):
    """Base class of settings. Each module defines its settings, and a recipe combines the settings of all modules."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _reject_booleans_as_numbers(cls, values: Any) -> Any:
        """Reject ``true`` and ``false`` for numbers. Pydantic's strict mode would also reject lists for tuples."""
        fields = cls.model_fields.items() if isinstance(values, Mapping) else ()
        errors = [
            InitErrorDetails(type=_not_a_number(value), loc=location, input=value)
            for name, field in fields
            for location, value in _booleans_for_numbers((name,), values.get(name), _alternatives(field.annotation))
        ]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return values


def _not_a_number(value: bool) -> PydanticCustomError:
    return PydanticCustomError("truth", "should be a number, not {truth}", {"truth": str(value).lower()})


def _booleans_for_numbers(location: Location, value: Any, allowed: list[Any]) -> Iterator[tuple[Location, bool]]:
    """Yield location and value of each boolean whose allowed types include a number type but not bool."""
    if isinstance(value, bool) and bool not in allowed and (int in allowed or float in allowed):
        yield location, value
    elif isinstance(value, list | tuple):
        items = [item for listed in allowed if get_origin(listed) in (tuple, list) for item in get_args(listed)]
        item_types = [alternative for item in items for alternative in _alternatives(item)]
        for index, item in enumerate(value):
            yield from _booleans_for_numbers((*location, index), item, item_types)


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types that a setting may have, without annotations."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [alternative for member in get_args(annotation) for alternative in _alternatives(member)]
    return [annotation]
