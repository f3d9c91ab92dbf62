"""The routes: what each request asks of the broker, and what it is answered.

Every request ends here in one place (`_answered`): token, errors as problems, metrics. Bodies are bounded by `MAX_BODY_KB` and
`BODY_S`; when the broker takes no more requests (`in_flight`), publishers hear 503 and when to come back.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from tidings import language
from tidings.errors import InvalidInput, TidingsError
from tidings.model import message as m
from tidings.model.subscription import Subscription
from tidings.model.value import TYPE
from tidings.net.gateway import cloudevents, metrics, openapi
from tidings.net.gateway.filters import wanted
from tidings.net.gateway.line import Line
from tidings.net.gateway.problems import Problem, decoded, from_error
from tidings.net.gateway.resources import LINE, Resource
from tidings.net.gateway.sessions import Session, Sessions
from tidings.net.gateway.streams import EventStream, serve_websocket
from tidings.net.runtime import Runtime

log = logging.getLogger(__name__)

MAX_BODY_KB = 1_024
BODY_S = 30.0
MAX_PAGE = 1_000
_OPEN = {"/healthz", "/readyz", "/openapi.json"}  # without a token: they tell nothing about events

Handler = Callable[[Request], Awaitable[Any]]


class App:
    """All handlers of one gateway."""

    def __init__(self, runtime: Runtime) -> None:
        self.sessions = Sessions(runtime)
        self.requests = metrics.Requests()
        self._runtime = runtime
        self._token = runtime.config.token
        self._publisher: Line | None = None
        self._document = msgspec.json.encode(openapi.document()) + b"\n"
        self.stopping = False

    async def start(self) -> None:
        await self.sessions.start()

    async def stop(self) -> None:
        self.stopping = True
        await self.sessions.stop()
        if self._publisher is not None:
            self._publisher.close("the gateway ends")

    def asgi(self) -> ASGIApp:
        routes: list[BaseRoute] = [
            self._route(path, handlers)
            for path, handlers in {
                "/events": {"POST": self.publish},
                "/subscriptions": {"GET": self.page, "POST": self.create},
                "/subscriptions/{id}": {"GET": self.show, "PUT": self.replace, "DELETE": self.delete},
                "/subscriptions/{id}/events": {"GET": self.stream},
                "/explain": {"POST": self.explain},
                "/accounts": {"GET": self.accounts},
                "/status": {"GET": self.status},
                "/metrics": {"GET": self.metrics},
                "/healthz": {"GET": self.healthz},
                "/readyz": {"GET": self.readyz},
                "/openapi.json": {"GET": self.openapi},
            }.items()
        ]
        routes.append(WebSocketRoute("/subscriptions/{id}/events", self.websocket))
        return Starlette(routes=routes, exception_handlers={HTTPException: self._not_routed})

    def _route(self, path: str, handlers: Mapping[str, Handler]) -> Route:
        async def endpoint(request: Request) -> Any:
            method = "GET" if request.method == "HEAD" else request.method
            return await self._answered(request, path, handlers[method])

        return Route(path, endpoint, methods=list(handlers))

    async def _answered(self, request: Request, path: str, handler: Handler) -> Any:
        begun_s = time.perf_counter()
        try:
            if path not in _OPEN:
                self._let_in(request)
            response = await handler(request)
        except Problem as problem:
            response = problem.response()
        except TidingsError as error:
            response = from_error(error).response()
        except ClientDisconnect:
            response = Response(status_code=400)
        except Exception:
            log.exception("%s %s", request.method, path)
            response = Problem(500, "see the broker's log").response()
        self.requests.add(path, request.method, response.status_code, time.perf_counter() - begun_s)
        return response

    async def _not_routed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return Problem(error.status_code, f"{request.method} {request.url.path}", headers=error.headers).response()

    def _let_in(self, connection: HTTPConnection) -> None:
        """The token of the socket protocol. Where there is none, a browser must not be made to act for a foreign page."""
        origin = connection.headers.get("origin", "")
        if origin and not self._token and origin.partition("://")[2] != connection.headers.get("host"):
            raise Problem(
                403, f"a page of {origin!r:.80}", "Origin", "a page of this server, or a token", kind="origin"
            )
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if self._token and (
            scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode())
        ):
            raise Problem(401, "no token, or a wrong one", "Authorization", "Bearer TOKEN", kind="token")

    # Events.

    async def publish(self, request: Request) -> Response:
        body = await _body(request)
        events = cloudevents.from_request(request.headers.raw, body, time.time())
        line = self._line()
        if line.paused:
            raise Problem(503, "too many publications wait for their confirmation", kind="not-now")
        asked = [line.ask(lambda number, event=event: m.Publish(number, event)) for event in events]  # type: ignore[misc]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        done = [answer for answer in answers if isinstance(answer, m.Done)]
        return _json(openapi.Accepted(len(done), sum(answer.repeated for answer in done)), 202)

    def _line(self) -> Line:
        """The one on which all HTTP requests publish and ask."""
        if self._publisher is None or self._publisher.closed:
            self._publisher = Line(self._runtime, LINE, taking=False)
        return self._publisher

    async def explain(self, request: Request) -> Response:
        asked: openapi.Explain = decoded(await _body(request), openapi.Explain)
        types = asked.types if isinstance(asked.types, tuple) else ()
        attributes = None
        if isinstance(asked.event, dict):
            data, _ = asked.event.pop("data", None), asked.event.pop("data_base64", None)
            context = {name: value for name, value in asked.event.items() if value is not None}
            attributes = cloudevents.context_attributes(context, lambda name: f"event.{name}")
            attributes.update(cloudevents.members(data)[1])
            if "type" in context:
                attributes[TYPE] = str(context["type"])
        try:
            filter = wanted(asked.source, asked.filters, asked.filter, "filter")
            condition = Subscription("explain", "explain", filter, types).condition
            return _json(language.explain(condition, attributes))
        except InvalidInput as error:
            raise from_error(error) from None

    # Subscriptions.

    async def page(self, request: Request) -> Response:
        limit = _number(request, "limit", 1, MAX_PAGE, MAX_PAGE)
        return _json(self.sessions.page(request.query_params.get("after", ""), limit))

    async def create(self, request: Request) -> Response:
        session = await self.sessions.create(decoded(await _body(request), Resource))
        return _json(session.resource, 201, {"location": f"/subscriptions/{session.id}"})

    async def show(self, request: Request) -> Response:
        return _json(self.sessions[request.path_params["id"]].resource)

    async def replace(self, request: Request) -> Response:
        """PUT makes it if it is not there."""
        id = request.path_params["id"]
        resource: Resource = decoded(await _body(request), Resource)
        if isinstance(resource.id, str) and resource.id != id:
            raise Problem(400, f"id {resource.id!r:.80}", "id", "the id of the path, or none", kind="invalid")
        resource = msgspec.structs.replace(resource, id=id)
        if id in self.sessions:
            return _json((await self.sessions.replace(resource)).resource)
        session = await self.sessions.create(resource)
        return _json(session.resource, 201, {"location": f"/subscriptions/{session.id}"})

    async def delete(self, request: Request) -> Response:
        await self.sessions.delete(request.path_params["id"])
        return Response(status_code=204)

    # Notifications.

    async def stream(self, request: Request) -> Any:
        session = self._readable(request.path_params["id"])
        count = _number(request, "count", 1, 1_000_000_000, 0)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        again = session.sent.after(unquote(request.headers.get("last-event-id", "")))
        return EventStream(session, await session.attach(), again, count)

    def _readable(self, id: str) -> Session:
        session = self.sessions[id]
        if session.webhook is not None:
            raise Problem(409, "its events go to its sink", "id", "a subscription without a sink", kind="taken")
        return session

    async def websocket(self, socket: WebSocket) -> None:
        try:
            self._let_in(socket)
            session = self._readable(socket.path_params["id"])
            line = await session.attach()
        except Problem as problem:
            await socket.send_denial_response(problem.response())
            return
        except TidingsError as error:
            await socket.send_denial_response(from_error(error).response())
            return
        await serve_websocket(socket, session, line)

    # Looking.

    async def status(self, request: Request) -> Response:
        return _json(await self._line().ask(m.AskStatus))

    async def accounts(self, request: Request) -> Response:
        by = request.query_params.get("by", "")
        if by not in openapi.ACCOUNTS_BY:
            raise Problem(400, f"by {by!r:.80}", "by", f"one of {', '.join(openapi.ACCOUNTS_BY[1:])}, or none")
        limit = _number(request, "limit", 1, MAX_PAGE, MAX_PAGE)
        return _json(await self._line().ask(lambda number: m.AskAccounts(number, by, limit)))

    async def metrics(self, request: Request) -> Response:
        report = await self._line().ask(m.AskStatus)
        sessions = self.sessions
        text = metrics.render(report, self.requests, len(sessions), sessions.readers, sessions.tally)
        return Response(text, headers={"content-type": metrics.CONTENT_TYPE})

    async def healthz(self, request: Request) -> Response:
        return _json(openapi.Health("alive"))

    async def readyz(self, request: Request) -> Response:
        store = self._runtime.store
        if self.stopping or (store is not None and not store.healthy):
            raise Problem(503, "shutting down" if self.stopping or store is None else store.reason, kind="not-now")
        return _json(openapi.Health("ready"))

    async def openapi(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body) + b"\n", status, headers, "application/json")


def _number(request: Request, name: str, least: int, most: int, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 12 or not least <= int(text) <= most:
        raise Problem(400, f"{name} {text!r:.80}", name, f"a whole number from {least} to {most}", kind="invalid")
    return int(text)


async def _body(request: Request) -> bytes:
    """At most so much, and in so many seconds."""
    too_large = Problem(413, "the body is too large", "body", f"at most {MAX_BODY_KB} KB", kind="limit")
    length = request.headers.get("content-length", "0")
    if length.isdigit() and len(length) < 20 and int(length) > MAX_BODY_KB * 1024:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_KB * 1024:
                    raise too_large
    except TimeoutError:
        raise Problem(408, "the body did not come to its end", "body", f"all of it within {BODY_S:g} s") from None
    return bytes(body)
