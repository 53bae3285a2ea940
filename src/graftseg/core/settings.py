"""The base of every settings class: frozen, and an unknown key is an error, as is a truth value for a number."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

MOST_STEPS = 10**9
"""More than any training has, or cases, or folds of them."""
MOST_VOXELS = 2**16
"""More than any scan has along an axis."""
MOST_IMAGES = 2**16
"""More than pass through a network together."""
Place = tuple[str | int, ...]
Voxels = Annotated[int, Field(gt=0, le=MOST_VOXELS)]
"""A length along an axis."""


class Settings(BaseModel):
    """Settings are defined beside the code that reads them and composed by the recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, given: Any) -> Any:
        """Python counts true as 1 and false as 0; whoever writes them into a recipe does not."""
        known = cls.model_fields.items() if isinstance(given, Mapping) else ()
        found = [
            InitErrorDetails(type=_no_number(truth), loc=place, input=truth)
            for name, field in known
            for place, truth in _truths_for_numbers((name,), given.get(name), _alternatives(field.annotation))
        ]
        if found:
            raise ValidationError.from_exception_data(cls.__name__, found)
        return given


def _no_number(truth: bool) -> PydanticCustomError:
    return PydanticCustomError("truth", "should be a number, not {truth}", {"truth": str(truth).lower()})


def _truths_for_numbers(place: Place, value: Any, kinds: list[Any]) -> Iterator[tuple[Place, bool]]:
    """Truth values, by themselves or in a list, where numbers are asked for and truth values are not."""
    if isinstance(value, bool) and bool not in kinds and (int in kinds or float in kinds):
        yield place, value
    elif isinstance(value, list | tuple):
        parts = [part for kind in kinds if get_origin(kind) in (tuple, list) for part in get_args(kind)]
        inner = [kind for part in parts for kind in _alternatives(part)]
        for index, item in enumerate(value):
            yield from _truths_for_numbers((*place, index), item, inner)


def _alternatives(kind: Any) -> list[Any]:
    """The types that a setting may have, without what else is said of them."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [one for part in get_args(kind) for one in _alternatives(part)]
    return [kind]
