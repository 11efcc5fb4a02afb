"""Fields of a request, with the types and bounds that they must have; null is as good as missing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from tinyweb.api.errors import ApiError, wrong

MOST_DIGITS = 400  # of an integer: as many as the largest float64 has, and more
NAMES = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array", dict: "an object"}


class Fields:
    """An object of JSON. `within`: where it stands, for messages. Each method raises ApiError for a value that it does
    not allow."""

    def __init__(self, values: Mapping[str, Any], within: str = ""):
        self.values, self.within = values, within

    @classmethod
    def of_body(cls, body: bytes) -> Fields:
        """The fields of a request; ApiError for what is no JSON, or no object."""
        try:
            found = json.loads(body, parse_constant=_no_number, parse_int=_integer)
        except (ValueError, RecursionError) as error:
            detail = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
            raise ApiError(400, f"The body of the request is no JSON: {detail}", code="invalid_json") from None
        if not isinstance(found, dict):
            raise ApiError(400, f"The body must be an object, not {_type(found)}", code="invalid_json")
        return cls(found)

    def path(self, name: str) -> str:
        """The name of a field, with where it stands."""
        return f"{self.within}.{name}" if self.within else name

    def get(self, name: str) -> Any:
        """The value as it is; None where it is missing."""
        return self.values.get(name)

    def need(self, name: str) -> Any:
        """The value of a field that must be there."""
        if (value := self.values.get(name)) is None:
            raise ApiError(400, f"'{self.path(name)}' is missing", self.path(name), "missing_required_parameter")
        return value

    def number(self, name: str, low: float, high: float, usual: float) -> float:
        """A number from `low` to `high`."""
        value = self.values.get(name)
        if value is None:
            return usual
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(self.path(name), f"must be a number, not {_type(value)}")
        if not low <= value <= high or not math.isfinite(value):
            raise wrong(self.path(name), f"must be from {low:g} to {high:g}")
        return float(value)

    def integer(self, name: str, low: int, high: int, usual: int | None) -> int | None:
        """An integer from `low` to `high`."""
        value = self.values.get(name)
        if value is None:
            return usual
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise wrong(self.path(name), f"must be an integer, not {_type(value)}")
        if not low <= value <= high:
            raise wrong(self.path(name), f"must be from {low} to {high}")
        return value

    def flag(self, name: str, usual: bool = False) -> bool:
        """true or false."""
        value = self.values.get(name)
        if value is None:
            return usual
        if not isinstance(value, bool):
            raise wrong(self.path(name), f"must be true or false, not {_type(value)}")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], usual: str) -> str:
        """One of some words."""
        value = self.values.get(name)
        if value is None:
            return usual
        if value not in allowed or not isinstance(value, str):
            raise wrong(self.path(name), f"must be one of {', '.join(allowed)}")
        return value

    def inner(self, name: str) -> Fields:
        """The fields of an object."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise wrong(self.path(name), f"must be an object, not {_type(value)}")
        return Fields(value or {}, self.path(name))


def text(value: Any, where: str) -> str:
    """A string of whole characters."""
    if not isinstance(value, str):
        raise wrong(where, f"must be a string, not {_type(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise wrong(where, "has half a character: a surrogate without its partner") from None
    return value


def _type(value: Any) -> str:
    return "null" if value is None else NAMES[type(value)]


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is more than anything here can be")
    return int(digits)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
