"""JSON of ours, read with the types and ranges that we write.

What does not fit is told with its file and its field; keys that nobody asks for may be there."""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from pmeta.base.files import read_json

MOST = 10**15
"""No figure of ours is larger."""
Number = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
Finite = Annotated[float, msgspec.Meta(ge=-1e308, le=1e308)]
Above0 = Annotated[float, msgspec.Meta(gt=0, le=MOST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Size = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
ANEW = "have it written anew, or leave it out"


def read(where: str | Path, text: str | bytes, shape: Any, otherwise: str = ANEW) -> Any:
    """What the JSON of a file holds, as it stands there; ValueError unless it has this shape.

    `otherwise` says what to do with another file.

    >>> read("x.json", '{"tasks": 4, "odd": []}', dict[str, Count], "remove it")
    Traceback (most recent call last):
    ValueError: x.json is not as we write it (Expected `int`, got `array` - at `$[...]`): remove it.
    """
    try:
        found = read_json(text)
    except ValueError as error:
        raise ValueError(f"{where} cannot be read ({error}): {otherwise}.") from None
    converted(where, found, shape, otherwise)
    return found


def converted(where: str | Path, value: Any, shape: Any, otherwise: str = ANEW) -> Any:
    """What was read as an object of this shape, such as a dataclass."""
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise unlike(where, error, otherwise) from None


def unlike(where: str | Path, why: object, otherwise: str = ANEW) -> ValueError:
    """The error of a file that is JSON and not ours."""
    return ValueError(f"{where} is not as we write it ({str(why).rstrip('.')}): {otherwise}.")
