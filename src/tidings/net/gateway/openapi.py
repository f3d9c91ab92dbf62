"""The OpenAPI document. The shapes are those that requests are decoded into; only CloudEvents are described by hand."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidings.language import Explanation
from tidings.model.status import AccountsReport, StatusReport
from tidings.net.gateway import metrics, problems
from tidings.net.gateway.cloudevents import BATCHED, MAX_BATCH, MAX_TEXT, STRUCTURED
from tidings.net.gateway.filters import Dialect
from tidings.net.gateway.resources import ID, Resource

VERSION = "1"
ACCOUNTS_BY = ("", "total", "subscription", "type", "broker", "reason")
JSON = "application/json"


class Accepted(msgspec.Struct, frozen=True):
    """The events are safe; those that were published before are not delivered again."""

    accepted: int
    repeated: int


class Health(msgspec.Struct, frozen=True):
    status: str


class Explain(msgspec.Struct, forbid_unknown_fields=True):
    """What a subscription would say, and an event, of which any part may be missing."""

    filter: str = ""
    filters: Annotated[tuple[Dialect, ...], Meta(max_length=100)] = ()
    types: tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...] | UnsetType = UNSET
    source: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)] | UnsetType = UNSET
    event: dict[str, Any] | UnsetType = UNSET


_TEXT = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
_MAYBE = {**_TEXT, "type": ["string", "null"]}
_TIME = {"type": ["string", "null"], "format": "date-time"}
CLOUDEVENT: dict[str, Any] = {
    "type": "object",
    "description": "A CloudEvent 1.0. Members beyond those named here are extensions.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"type": "string", "enum": ["1.0"]},
        "id": _TEXT,
        "source": {**_TEXT, "format": "uri-reference", "pattern": r"^[^\x00-\x20\x7f]+$"},
        "type": {"type": "string", "minLength": 1, "maxLength": 255},
        "subject": _MAYBE,
        "time": _TIME,
        "expirytime": {**_TIME, "description": "The event is worth nothing afterwards: its timeout."},
        "dataschema": {**_MAYBE, "format": "uri-reference"},
        "datacontenttype": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
        "data": {"description": "Members of a JSON object are what filters see, beside the context attributes."},
        "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
    },
    "propertyNames": {"pattern": "^([a-z0-9]{1,64}|data_base64)$"},
    "additionalProperties": {"type": ["string", "boolean", "integer", "null"]},
}
_REASONS = {
    400: "It cannot be used: what, where, and what was expected.",
    401: "No token, or a wrong one.",
    403: "The page of another origin asks, and there is no token.",
    404: "There is no such subscription.",
    408: "The body did not come to its end.",
    409: "The id is taken, or the events go to a sink.",
    413: "Too large.",
    415: "A CloudEvents format that is not understood.",
    500: "An error of the broker.",
    503: "The broker cannot keep up, or is not ready. Retry-After says when to come back.",
}
_BODY = (400, 408, 413)  # what may be wrong with a body


def document() -> dict[str, Any]:
    _, shapes = msgspec.json.schema_components(
        (Resource, Explain, Accepted, Health, Explanation, StatusReport, AccountsReport, problems.ProblemDetail),
        ref_template="#/components/schemas/{name}",
    )
    shapes["Dialect"] |= {"minProperties": 1, "maxProperties": 1}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidings",
            "version": VERSION,
            "description": "Content-based publish/subscribe with deadlines. CloudEvents in and out.",
        },
        "paths": _paths(),
        "components": {
            "schemas": {**shapes, "CloudEvent": CLOUDEVENT},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _paths() -> dict[str, Any]:
    one = {"parameters": [_id()]}
    subscription, made = _ref("Resource"), {**_answer("Resource", "It was not there before."), "headers": _LOCATION}
    return {
        "/events": {
            "post": _operation(
                "publish", "Publish events; answered when they are safe.", {202: _answer("Accepted", "All are safe.")},
                (*_BODY, 415, 503), _CE_HEADERS, _CE_BODY,
            )
        },
        "/subscriptions": {
            "get": _operation(
                "listSubscriptions", "Subscriptions in the order of their ids.",
                {200: _content({JSON: {"type": "array", "items": subscription}}, "A page of them.")}, (400,), _PAGE,
            ),
            "post": _operation(
                "createSubscription", "Subscribe.", {201: made}, (*_BODY, 409, 503), body=_body("Resource")
            ),
        },
        "/subscriptions/{id}": {
            **one,
            "get": _operation("getSubscription", "A subscription.", {200: _answer("Resource", "It.")}, (404,)),
            "put": _operation(
                "putSubscription", "Change a subscription, or make it.",
                {200: _answer("Resource", "It was changed."), 201: made}, (*_BODY, 409, 503), body=_body("Resource"),
            ),
            "delete": _operation("deleteSubscription", "Unsubscribe.", {204: {"description": "Gone."}}, (404, 503)),
        },
        "/subscriptions/{id}/events": {
            **one,
            "get": _operation(
                "streamEvents", "Its events, as Server-Sent Events; with an Upgrade, by WebSocket.",
                {200: _content({"text/event-stream": {"type": "string"}}, "CloudEvents, one in each data field.")},
                (400, 404, 409, 503), _STREAM,
            ),
        },
        "/explain": {
            "post": _operation(
                "explain", "Why an event matches, or not; without an event, what an index can serve.",
                {200: _answer("Explanation", "Leaf by leaf.")}, _BODY, body=_body("Explain"),
            )
        },
        "/accounts": {
            "get": _operation(
                "getAccounts", "Where every matched delivery ended.", {200: _answer("AccountsReport", "The accounts.")},
                (400, 503), _ACCOUNTS,
            )
        },
        "/status": {
            "get": _operation(
                "getStatus", "Links, queues, faults and latest events.", {200: _answer("StatusReport", "The status.")}, (503,)
            )
        },
        "/metrics": {
            "get": _operation(
                "getMetrics", "For Prometheus.", {200: _content({metrics.CONTENT_TYPE: {"type": "string"}}, "Metrics.")}, (503,)
            )
        },
        "/healthz": {"get": _operation("isAlive", "Whether the process answers.", {200: _answer("Health", "Yes.")}, ())},
        "/readyz": {
            "get": _operation("isReady", "Whether it takes events.", {200: _answer("Health", "Yes.")}, (503,))
        },
        "/openapi.json": {
            "get": _operation("getDocument", "This.", {200: _content({JSON: {"type": "object"}}, "This.")}, ())
        },
    }  # fmt: skip


def _operation(
    id: str,
    summary: str,
    answers: dict[int, dict[str, Any]],
    problems_: tuple[int, ...],
    parameters: tuple[dict[str, Any], ...] = (),
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    refusals = {status: _refusal(status) for status in (*problems_, 401, 403, 500)}
    operation: dict[str, Any] = {
        "operationId": id,
        "summary": summary,
        "responses": {str(status): answer for status, answer in sorted({**answers, **refusals}.items())},
    }
    if parameters:
        operation["parameters"] = list(parameters)
    if body is not None:
        operation["requestBody"] = body
    return operation


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(kinds: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "content": {kind: {"schema": schema} for kind, schema in kinds.items()}}


def _answer(name: str, description: str) -> dict[str, Any]:
    return _content({JSON: _ref(name)}, description)


def _refusal(status: int) -> dict[str, Any]:
    return _content({problems.MEDIA_TYPE: _ref("ProblemDetail")}, _REASONS[status])


def _body(name: str) -> dict[str, Any]:
    return {"required": True, "content": {JSON: {"schema": _ref(name)}}}


def _parameter(name: str, place: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "schema": schema, "description": description}


def _id() -> dict[str, Any]:
    return {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": ID}}


def _limit() -> dict[str, Any]:
    return _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 1_000}, "How many at most.")


_LOCATION = {"location": {"schema": {"type": "string"}, "description": "Where it is."}}
_PAGE = (_limit(), _parameter("after", "query", {"type": "string"}, "Begin after this id."))
_ACCOUNTS = (
    _parameter("by", "query", {"type": "string", "enum": list(ACCOUNTS_BY)}, "Only these rows."),
    _limit(),
)
_STREAM = (
    _parameter(
        "count", "query", {"type": "integer", "minimum": 1, "maximum": 1_000_000_000}, "End after so many events."
    ),
    _parameter("Last-Event-ID", "header", {"type": "string"}, "Go on after this one."),
)
_CE_HEADERS = tuple(
    _parameter(f"ce-{name}", "header", {"type": "string"}, "In binary mode, where the body is the data.")
    for name in ("specversion", "id", "source", "type", "subject", "time", "expirytime", "dataschema")
)
_CE_BODY = {
    "required": False,
    "content": {
        STRUCTURED: {"schema": _ref("CloudEvent")},
        BATCHED: {"schema": {"type": "array", "maxItems": MAX_BATCH, "items": _ref("CloudEvent")}},
        JSON: {"schema": {}},
    },
}
