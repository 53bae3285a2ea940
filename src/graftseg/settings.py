"""The base of every settings class: frozen, and an unknown key is an error."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Settings are defined beside the code that reads them and composed by the recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
