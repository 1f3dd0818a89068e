"""JSON that somebody wrote, bounded: whatever is wrong with it is an InputError with its line."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from gdsctl.errors import InputError


def _no_constant(name: str) -> NoReturn:
    raise InputError(f"{name} is no JSON number")


def json_value(text: str) -> Any:
    """The value of a JSON text. Raises InputError (line within the text) for what is not JSON."""
    try:
        value = json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg} (column {error.colno})", line=error.lineno) from None
    except RecursionError:
        raise InputError("not valid JSON: nested too deep") from None
    except UnicodeEncodeError:
        raise InputError("half of a surrogate pair is no character") from None
    except ValueError as error:  # CPython's limit on the digits of an integer
        raise InputError(f"not valid JSON: {error}") from None
    return value


def json_object(text: str) -> dict[str, Any]:
    """The same where the whole must be an object."""
    value = json_value(text)
    if not isinstance(value, dict):
        raise InputError(f"a JSON object is wanted, not {type(value).__name__}")
    return value
