"""The base class of all settings. Settings are frozen. They reject unknown keys, and booleans in place of numbers."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

MAX_COUNT = 10**9  # upper limit for numbers of steps, cases and folds
MAX_SIDE = 2**16  # upper limit for the length of an axis in voxels
MAX_IMAGES = 2**16  # upper limit for images in a batch
Location = tuple[str | int, ...]  # keys and indices that lead to a value
Voxels = Annotated[int, Field(gt=0, le=MAX_SIDE)]  # the length of an axis in voxels
ClassNumber = Annotated[int, Field(ge=1, le=255)]  # of a foreground class


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
            for location, value in _booleans_for_numbers((name,), values.get(name), _member_types(field.annotation))
        ]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return values


def without_unused(settings: Settings, handler: SerializerFunctionWrapHandler, *names: str) -> dict[str, Any]:
    """Return all settings except default values of ``names``, so that files of older recipes stay the same."""
    fields = type(settings).model_fields
    unused = {name for name in names if getattr(settings, name) == fields[name].default}
    return {name: value for name, value in handler(settings).items() if name not in unused}


def _not_a_number(value: bool) -> PydanticCustomError:
    return PydanticCustomError("truth", "should be a number, not {truth}", {"truth": str(value).lower()})


def _booleans_for_numbers(location: Location, value: Any, types: list[Any]) -> Iterator[tuple[Location, bool]]:
    """Yield location and value of each boolean whose allowed ``types`` include a number type but not bool."""
    if isinstance(value, bool) and bool not in types and (int in types or float in types):
        yield location, value
    elif isinstance(value, list | tuple):
        sequence_types = [allowed for allowed in types if get_origin(allowed) in (tuple, list)]
        item_types = [
            member for allowed in sequence_types for item in get_args(allowed) for member in _member_types(item)
        ]
        for index, item in enumerate(value):
            yield from _booleans_for_numbers((*location, index), item, item_types)


def _member_types(annotation: Any) -> list[Any]:
    """Return the members of a union, or a list with a single type; constraints such as ``Field`` are removed."""
    if get_origin(annotation) is Annotated:
        return _member_types(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [nested for member in get_args(annotation) for nested in _member_types(member)]
    return [annotation]
