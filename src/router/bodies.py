"""JSON bodies, read strictly: whatever is wrong becomes one line that names the field.

Wrong JSON (NaN, lone surrogates and bottomless nesting included), a body that is no object, a wrong
type, a value out of range: each is an InvalidRequest with ``param``. ``null`` means absent, unknown
fields are ignored unless a model forbids them.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from pdcore.errors import InvalidRequest, UnsupportedField

Model = TypeVar("Model", bound=BaseModel)
Fields = Mapping[str, Any]

SHOWN_CHARS = 40
MAX_CONTAINERS = 65_536
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def read_object(body: bytes) -> Fields:
    """The body's fields without those that are null."""
    _refuse_crowds(body)
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body must be a JSON object, not {_kind(value)}")
    return dict(without_nulls(value))


def without_nulls(value: Any) -> Any:
    """An object's fields that are not null; anything else as it is."""
    if not isinstance(value, dict):
        return value
    return {name: field for name, field in value.items() if field is not None}


def read_fields(model: type[Model], fields: Fields) -> Model:
    """Validate what ``model`` knows of ``fields``; only the first of several errors is told."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
    raise _to_invalid_request(details)


def wrong(message: str) -> PydanticCustomError:
    """For validators: ``message`` follows the field's name. Braces in it are kept as they are."""
    return PydanticCustomError("wrong", "{message}", {"message": message})


def unsupported(message: str) -> PydanticCustomError:
    return PydanticCustomError("unsupported", "{message}", {"message": message})


def path_of(location: Sequence[int | str]) -> str:
    """``("messages", 0, "role")`` -> ``"messages[0].role"``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def shown(value: Any) -> str:
    """A short ``repr`` of what the client sent, in a time that does not grow with it."""
    text = repr(_head(value))
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."


def _head(value: Any) -> Any:
    """As much of ``value`` as can show: each item of a container takes three characters or more."""
    match value:
        case str():
            return value[: SHOWN_CHARS + 1]
        case list():
            return [_head(item) for item in value[: SHOWN_CHARS // 3 + 1]]
        case dict():
            first = islice(value.items(), SHOWN_CHARS // 3 + 1)
            return {_head(name): _head(item) for name, item in first}
    return value


def _refuse_crowds(body: bytes) -> None:
    """A million empty lists hold the interpreter for most of a second; no request needs them."""
    if _num_opened(body) > MAX_CONTAINERS and _num_opened(_STRING.sub(b"", body)) > MAX_CONTAINERS:
        raise InvalidRequest(f"the body holds more than {MAX_CONTAINERS} lists and objects")


def _num_opened(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def _to_invalid_request(details: ErrorDetails) -> InvalidRequest:
    path = path_of(details["loc"])
    kind = details["type"]
    error = UnsupportedField if kind == "unsupported" else InvalidRequest
    return error(f"{path} {_complaint(kind, details)}", param=path)


def _complaint(kind: str, details: ErrorDetails) -> str:
    if kind in ("wrong", "unsupported"):
        return details["msg"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is unknown"
    expected = _EXPECTED.get(kind)
    limits = {name: _short(limit) for name, limit in details.get("ctx", {}).items()}
    text = expected.format(**limits) if expected else details["msg"].lower()
    return f"must be {text}, not {shown(details['input'])}"


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": "one of {expected}",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
    "too_short": "at least {min_length} items long",
    "too_long": "at most {max_length} items long",
}


def _short(limit: Any) -> Any:
    return f"{limit:g}" if isinstance(limit, float) else limit


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
