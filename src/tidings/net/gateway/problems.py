"""What went wrong, as `application/problem+json`: what, where in the request, and what was expected instead."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from tidings.errors import BusClosed, FilterError, InvalidInput, LimitExceeded, NetworkError, StoreError, TidingsError

MEDIA_TYPE = "application/problem+json"
RETRY_S = 1  # what a client is asked to wait when the broker cannot keep up
_TITLES = {
    400: "The request cannot be used",
    401: "A token is needed",
    403: "This is not allowed",
    404: "There is no such thing",
    405: "This resource does not do that",
    408: "The request did not come to its end in time",
    409: "That does not fit with what is there",
    413: "The request is too large",
    415: "This media type is not understood",
    500: "An error of the broker",
    503: "The broker cannot keep up, or is not ready",
}
_VALIDATION = re.compile(r"Expected (?P<expected>.+?)(?:, got (?P<found>.+?))?(?: - at `(?P<where>.+)`)?")
_OTHER = re.compile(r"(?P<what>.+?)(?: - at `(?P<where>.+)`)?")


class ProblemDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """RFC 9457. `column` counts from 1 in a filter's text."""

    type: str
    title: str
    status: int
    detail: str
    where: str = ""
    expected: str = ""
    column: int = 0


class Problem(Exception):
    """An answer that says no."""

    def __init__(
        self,
        status: int,
        detail: str,
        where: str = "",
        expected: str = "",
        *,
        kind: str = "",
        column: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.where = status, where
        title = _TITLES.get(status, "The request failed")
        kind = f"urn:tidings:problem:{kind}" if kind else "about:blank"
        self.body = ProblemDetail(kind, title, status, detail, where, expected, column)
        self.headers = dict(headers or {})
        if status == 503:
            self.headers.setdefault("retry-after", str(RETRY_S))
        elif status == 401:
            self.headers["www-authenticate"] = 'Bearer realm="tidings"'

    def response(self) -> Response:
        return Response(msgspec.json.encode(self.body) + b"\n", self.status, self.headers, MEDIA_TYPE)


def from_error(error: TidingsError, where: str = "") -> Problem:
    """The caller's fault is 400; what the broker cannot take now, it may take later."""
    if isinstance(error, FilterError):
        return Problem(400, error.reason, where, kind="filter", column=error.column)
    if isinstance(error, LimitExceeded | StoreError | NetworkError | BusClosed):
        return Problem(503, str(error), where, kind="not-now")
    if isinstance(error, InvalidInput):
        what, _, expected = str(error).partition("expected ")
        return Problem(400, str(error), where or what.partition(":")[0], expected, kind="invalid")
    return Problem(500, str(error), where)


def decoded(body: bytes | msgspec.Raw, shape: Any, where: str = "body") -> Any:
    """JSON of this shape, or a Problem that names the place."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), where) from None
    except RecursionError:
        raise Problem(400, "nested too deeply", where, kind="json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"no JSON: {error}", where, "JSON in UTF-8", kind="json") from None
    except InvalidInput as error:
        raise from_error(error, where) from None


def _invalid(message: str, where: str) -> Problem:
    """msgspec says ``Expected `str`, got `int` - at `$.types[0]` ``."""
    match = _VALIDATION.fullmatch(message)
    place = (match or _OTHER.fullmatch(message) or {"where": None})["where"]
    inside = place.removeprefix("$").lstrip(".") if place else ""
    where = where if not inside else inside if where == "body" else f"{where}.{inside}"
    if match is None:
        return Problem(400, message.partition(" - at ")[0].replace("`", "'"), where, kind="shape")
    expected = match["expected"].replace("`", "")
    found = f"found {match['found']}".replace("`", "") if match["found"] else f"expected {expected}"
    return Problem(400, found, where, expected, kind="shape")
