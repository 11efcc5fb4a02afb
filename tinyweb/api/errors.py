"""Errors as OpenAI's protocol has them: a status, and an object that says what was wrong."""

from __future__ import annotations

from typing import Any

from tinyweb.errors import printable


class ApiError(Exception):
    """What a client is told. `param`: the field of the request that is meant; `code`: for programs."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, printable(message), param, code

    @property
    def kind(self) -> str:
        """The type of errors of this status."""
        kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        return kinds.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")

    def body(self) -> dict[str, Any]:
        """The JSON of an answer."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def wrong(param: str, message: str) -> ApiError:
    """Of a field with a value that cannot be."""
    return ApiError(400, f"'{param}' {message}", param, "invalid_value")


def unsupported(param: str, message: str) -> ApiError:
    """Of a field that this server does not know how to follow."""
    return ApiError(400, f"'{param}' {message}", param, "unsupported_parameter")
