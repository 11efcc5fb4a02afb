"""The routes of the protocol, and what guards them: the key, the pages that may ask, sizes and numbers of requests."""

from __future__ import annotations

import asyncio
import functools
import hmac
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tinyweb.api import requests
from tinyweb.api.answers import Answer, embeddings, event
from tinyweb.api.errors import ApiError
from tinyweb.api.fields import Fields
from tinyweb.api.generation import Generation, Piece
from tinyweb.api.models import Served
from tinyweb.api.worker import Worker
from tinyweb.errors import TinywebError
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.hosts import ascii_host, is_own

T = TypeVar("T")
LOCAL = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"  # pages of this machine, by their origin
# what is read of a body that is too large, in the largest that is not: few clients read an answer before they have sent
DISCARDED = 16
TEXTS_AT_ONCE = 32  # whose vectors are made between two steps of answers


@dataclass(frozen=True)
class Limits:
    """`body`: bytes of a request; `body_seconds`: in which it must have come; `answers`: under way and waiting."""

    body: int = 8 * 2**20
    body_seconds: float = 30.0
    answers: int = 1024


@dataclass
class Api:
    """The server's state. `key`: what clients must know; `origins`: of pages that may ask beside those of this machine,
    "*": any; `hosts`: names of the server in requests beside localhost and the address that they came to."""

    models: Sequence[Served]
    worker: Worker
    key: str | None = None
    origins: Sequence[str] = ()
    limits: Limits = Limits()
    hosts: Sequence[str] = ()
    under_way: int = field(default=0, init=False)  # answers

    def __post_init__(self) -> None:
        # texts are made tokens beside the loop; one after the other, as templates count their steps
        self._texts = ThreadPoolExecutor(1, thread_name_prefix="tinyweb-api-texts")
        self._hosts = {ascii_host(name) for name in self.hosts}

    def answers_to(self, host: str, address: str) -> bool:
        """Whether a Host header, of a connection to this address, names this server."""
        return is_own(host, address, self._hosts)

    def app(self) -> Starlette:
        """The application, for any ASGI server."""
        routes = [
            Route("/health", self.health),
            Route("/v1/models", self.list_models),
            Route("/v1/models/{name:path}", self.one_model),
            Route("/v1/chat/completions", functools.partial(self.write, kind="chat"), methods=["POST"]),
            Route("/v1/completions", functools.partial(self.write, kind="completion"), methods=["POST"]),
            Route("/v1/embeddings", self.embed, methods=["POST"]),
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=["*"] if "*" in self.origins else [*self.origins],
            allow_origin_regex=LOCAL,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            max_age=600,
        )
        handlers = {ApiError: _refused, HTTPException: _not_found, ClientDisconnect: _gone, Exception: _failed}
        return Starlette(
            routes=routes, middleware=[cors, Middleware(_Guard, api=self)], exception_handlers=handlers,
            lifespan=self._lifespan,
        )  # fmt: skip

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.worker.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            self.worker.stop()
            await asyncio.to_thread(self.worker.join, 60)
            self._texts.shutdown()

    # -- routes -------------------------------------------------------------------------------------------------------
    async def health(self, request: Request) -> Response:
        """That the server is there, and how many answers are under way and waiting."""
        loads = [m.engine.load for m in self.models if m.engine is not None]
        running, waiting = (sum(part) for part in zip(*loads)) if loads else (0, 0)
        return JSONResponse({"status": "ok", "running": running, "waiting": waiting})

    async def list_models(self, request: Request) -> Response:
        """All of them."""
        return JSONResponse({"object": "list", "data": [m.card() for m in self.models]})

    async def one_model(self, request: Request) -> Response:
        """One, by its name."""
        return JSONResponse(self._model(request.path_params["name"]).card())

    async def write(self, request: Request, kind: str) -> Response:
        """Answers to a conversation, or to the beginnings of texts."""
        fields = await self._fields(request)
        model = self._model(fields.need("model"))
        model.writer()
        asked = requests.asked(fields, model.settings, kind)
        prompts = await self._prompts(fields, model, kind)
        requests.check_count(len(prompts) * asked.count)
        if self.under_way + len(prompts) * asked.count > self.limits.answers:
            raise ApiError(429, "Too many answers are under way: ask again later", code="rate_limit_exceeded")
        answers = _Answers(self, model, prompts, asked)
        answer = Answer(kind, model.name, asked.chances, asked.stream and asked.usage)
        if asked.stream:
            return _Events(answers.stream(answer, request.receive))
        return JSONResponse(await answers.whole(answer, request.receive))

    async def embed(self, request: Request) -> Response:
        """Vectors of texts."""
        fields = await self._fields(request)
        model = self._model(fields.need("model"))
        try:
            dimensions = await self.worker.call(lambda: int(model.vectors.embedder.dimensions))
            asked = requests.embeddings(fields, dimensions)
            found = []
            for i in range(0, len(asked.texts), TEXTS_AT_ONCE):
                if await request.is_disconnected():
                    raise ClientDisconnect
                part = asked.texts[i : i + TEXTS_AT_ONCE]
                found.append(await self.worker.call(functools.partial(model.vectors.encode, part, asked.kind)))
        except (TinywebError, NotImplementedError) as error:
            raise ApiError(
                400, f"{model.name} makes no vectors here: {error}", "model", "model_not_supported"
            ) from None
        vectors, tokens = np.concatenate([v for v, _ in found]), sum(n for _, n in found)
        return JSONResponse(embeddings(model.name, vectors, tokens, asked.base64))

    # -- requests -----------------------------------------------------------------------------------------------------
    def _model(self, name: object) -> Served:
        for model in self.models:
            if model.name == name:
                return model
        known = ", ".join(m.name for m in self.models)
        raise ApiError(404, f"There is no model {str(name)[:100]!r} here: choose {known}", "model", "model_not_found")

    async def _fields(self, request: Request) -> Fields:
        """The body of a request, which must not be too large, and not take for ever."""
        most, came, body = self.limits.body, 0, bytearray()
        length = request.headers.get("content-length", "")
        announced = int(length[:20]) if length.isdecimal() else 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                if announced <= DISCARDED * most:
                    async for chunk in request.stream():
                        came += len(chunk)
                        body += chunk if came <= most else b""
                        if came > DISCARDED * most:
                            break
        except TimeoutError:
            raise ApiError(408, "The request did not arrive in time", code="request_timeout") from None
        if max(came, announced) > most:
            raise ApiError(413, f"The request is larger than {most} bytes", code="request_too_large")
        return Fields.of_body(bytes(body))

    async def _prompts(self, fields: Fields, model: Served, kind: str) -> list[list[int]]:
        """Token ids of what is to be answered or continued; each fits into the context."""
        tokenizer = model.writer()[1]
        where = "messages" if kind == "chat" else "prompt"
        given: list[list[int] | Callable[[], list[int]]]
        if kind == "chat":
            if tokenizer.completes:
                said = f"{model.name} is a base model, which has no chat template: ask /v1/completions"
                raise ApiError(400, said, "model", "model_not_supported")
            given = [functools.partial(tokenizer.prompt, requests.messages(fields))]
        else:
            asked = requests.prompts(fields, tokenizer.vocab_size)
            given = [p if isinstance(p, list) else functools.partial(_beginning, tokenizer, p) for p in asked]
        prompts = [p if isinstance(p, list) else await self._text(p, where) for p in given]
        for prompt in prompts:
            requests.check_length(prompt, model.context, where)
        return prompts

    async def _text(self, tokens: Callable[[], list[int]], where: str) -> list[int]:
        """Token ids, worked out beside the loop."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._texts, tokens)
        except TinywebError as error:
            raise ApiError(400, str(error), where, "invalid_value") from None


class _Answers:
    """The answers to one request. Whatever happens, none goes on when nobody waits any more."""

    def __init__(self, api: Api, model: Served, prompts: Sequence[Sequence[int]], asked: requests.Asked):
        self.api, self.model = api, model
        self.engine, tokenizer = model.writer()
        self.prompt = sum(len(p) for p in prompts)
        self.queue: asyncio.Queue[tuple[int, Piece] | None] = asyncio.Queue()
        most = min(asked.max_tokens or model.context + 1, model.context + 1)
        self.generations = []
        for prompt in prompts:
            for i in range(asked.count):
                settings = replace(asked.settings, max_tokens=most, seed=asked.settings.seed + i)
                generation = Generation(
                    tokenizer, prompt, settings, model.context, lambda piece: None, asked.stops, asked.chances
                )
                self.generations.append(generation)

    async def whole(self, answer: Answer, receive: Receive) -> dict[str, object]:
        """The answer to a request that is not streamed; ApiError where one breaks off."""
        pieces: list[list[Piece]] = [[] for _ in self.generations]
        async with aclosing(self.pieces(receive)) as all_pieces:
            async for index, piece in all_pieces:
                if piece.error is not None:
                    raise ApiError(500, piece.error)
                pieces[index].append(piece)
        return answer.whole(pieces, self.prompt)

    async def stream(self, answer: Answer, receive: Receive) -> AsyncGenerator[bytes]:
        """The events of a request that is streamed."""
        produced = [0] * len(self.generations)
        async with aclosing(self.pieces(receive)) as pieces:
            for index in range(len(produced)):
                if (first := answer.begin(index)) is not None:
                    yield event(first)
            async for index, piece in pieces:
                if piece.error is not None:
                    yield event(ApiError(500, piece.error).body())
                    return
                produced[index] = piece.produced
                for chunk in answer.chunks(index, piece):
                    yield event(chunk)
        if answer.with_usage:
            yield event(answer.end(self.prompt, sum(produced)))
        yield event("[DONE]")

    async def pieces(self, receive: Receive) -> AsyncGenerator[tuple[int, Piece]]:
        """Those of all answers as they come, with the answer's number. ClientDisconnect where the client goes."""
        left = len(self.generations)
        self.api.under_way += left
        watch = asyncio.create_task(self._watch(receive))
        try:
            for index, generation in enumerate(self.generations):
                self.api.worker.submit(self.engine, generation, functools.partial(self._came, index))
            while left:
                if (item := await self.queue.get()) is None:
                    raise ClientDisconnect
                left -= item[1].last
                yield item
        finally:
            watch.cancel()
            self.api.under_way -= len(self.generations)
            for generation in self.generations:
                generation.cancelled = True

    def _came(self, index: int, piece: Piece) -> None:
        self.queue.put_nowait((index, piece))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.queue.put_nowait(None)


def _beginning(tokenizer: Tokenizer, text: str) -> list[int]:
    return [*tokenizer.begin, *tokenizer.encode(text)]


class _Events(Response):
    """A stream of events, each sent as it comes."""

    media_type = "text/event-stream"

    def __init__(self, stream: AsyncGenerator[bytes]):
        self.stream, self.status_code, self.background = stream, 200, None
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with aclosing(self.stream) as stream:
                async for data in stream:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        except ClientDisconnect:
            return
        await send({"type": "http.response.body", "body": b""})


class _Guard:
    """Refuses requests for other servers, of pages that may not ask, and of clients without the key."""

    def __init__(self, app: ASGIApp, api: Api):
        self.app, self.api = app, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._objection(Request(scope))) is not None:
            await JSONResponse(error.body(), error.status)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _objection(self, request: Request) -> ApiError | None:
        address = (request.scope.get("server") or ("",))[0]
        for host in request.headers.getlist("host"):  # HTTP/1.0 has none, and no browser speaks it
            if not self.api.answers_to(host, address):
                shown = host[:100]
                return ApiError(
                    421, f"This server does not answer to the host {shown}: start it with --allow-host NAME for a name",
                    code="host_not_allowed",
                )  # fmt: skip
        origin, allowed = request.headers.get("origin"), self.api.origins
        if origin is not None and "*" not in allowed and origin not in allowed and not re.fullmatch(LOCAL, origin):
            return ApiError(
                403, f"Pages of {origin[:100]} may not ask this server: start it with --allow-origin {origin[:100]}",
                code="origin_not_allowed",
            )  # fmt: skip
        # the path that routes are found by: the one of `request.url` is made with what the client says is the host
        if self.api.key is None or not request.scope["path"].startswith("/v1"):
            return None
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if hmac.compare_digest(given.encode("latin-1"), self.api.key.encode()):
            return None
        return ApiError(401, "The key is missing or wrong: send 'Authorization: Bearer KEY'", code="invalid_api_key")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    close = {"connection": "close"} if error.status in (408, 413) else {}  # the rest of the body is not read
    return JSONResponse(error.body(), error.status, close)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    method, path = request.method, request.scope["path"][:200]
    said = f"There is no {method} {path} here: docs/api.md lists what there is"
    return JSONResponse(ApiError(error.status_code, said, code="unknown_url").body(), error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse(ApiError(500, "The server failed on this request; its console says how").body(), 500)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it
