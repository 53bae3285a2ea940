from typing import Any

import pytest
from pydantic import ValidationError

from graftseg.data.prepare import PrepareSettings


@pytest.mark.parametrize(
    ("content", "keyword"),
    [
        ({"dimensions": 4}, "dimensions"),
        ({"dimensions": 3, "spacing": [1, 1]}, "spacing has 2 entries for 3 dimensions"),
        ({"dimensions": 2, "spacing": [1, 0]}, "spacing must be above 0 mm"),
        ({"dimensions": 3, "orientation": "RAX"}, "is not three axis codes such as RAS"),
        ({"dimensions": 3, "orientation": "RLA"}, "is not three axis codes such as RAS"),
        ({"dimensions": 3, "crop": True}, "crop"),
    ],
)
def test_settings_that_contradict(content: dict[str, Any], keyword: str) -> None:
    with pytest.raises(ValidationError, match=keyword):
        PrepareSettings.model_validate(content)
