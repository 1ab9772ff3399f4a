# SPDX-License-Identifier: Apache-2.0
"""The server of the explorer. It serves this computer only, requires a token, and writes nothing."""

from __future__ import annotations

import json
import logging
import math
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from picirc.checks import check_integer
from picirc.errors import ArgumentError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Answer = dict[str, Any]
Question = Callable[[Answer], Answer]

HOST = "127.0.0.1"
_FILES = {"": "text/html", "style.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}
_MOST_BYTES = 2**20  # of a request
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors "
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}

log = logging.getLogger(__name__)


class Page(Protocol):
    """What the explorer shows: a model, and the questions that it answers."""

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by name; questions and answers are JSON values."""

    def describe(self) -> Answer:
        """The description that the page loads at the beginning; ``kind`` selects the page."""


class Explorer:
    """A running explorer.

    Args:
        page: What it shows.
        port: The port; 0 for a free one.
        framed: Whether a notebook on this computer may show the page in a frame.

    Attributes:
        url: The address of the page. Anyone on this computer who knows it can query the model.
    """

    def __init__(self, page: Page, port: int = 0, *, framed: bool = False) -> None:
        token = secrets.token_urlsafe(16)
        try:
            import uvicorn

            app = application(page, token, framed=framed)
        except ImportError as error:
            raise ImportError('the explorer needs starlette and uvicorn: pip install "picirc[web]"') from error
        self._socket = _listen(port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}/{token}/"
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="picirc explorer", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the server has stopped. Ctrl-C stops it."""
        try:
            while self._thread.is_alive():
                self._thread.join(0.5)
        except KeyboardInterrupt:
            self.stop()

    def stop(self) -> None:
        """Stop the server."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __repr__(self) -> str:
        return f"Explorer({self.url!r})"

    def _repr_html_(self) -> str:
        return f'<iframe src="{self.url}" width="100%" height="760" style="border:0" title="picirc explorer"></iframe>'


def application(page: Page, token: str, *, framed: bool = False) -> ASGIApp:
    """The page, its files and its questions at ``/token/``. All other requests are refused."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    lock = threading.Lock()  # a circuit keeps its buffers between queries

    def file(request: Request) -> Response:
        name = request.path_params.get("name", "")
        if name not in _FILES:
            raise HTTPException(404, f"there is no file {name!r}")
        content = files("picirc.explorer").joinpath("static", name or "index.html").read_bytes()
        return Response(content, media_type=f"{_FILES[name]}; charset=utf-8")

    def answer(ask: Callable[[], Answer]) -> Response:
        try:
            with lock, torch.no_grad():
                return JSONResponse(ask())
        except (ValueError, NotImplementedError) as error:
            raise HTTPException(400, str(error)) from error
        except Exception as error:
            log.exception("a question could not be answered")
            raise HTTPException(500, "the model could not answer; see the terminal of the explorer") from error

    async def question(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in page.questions:
            raise HTTPException(404, f"there is no question {name!r}; ask {', '.join(page.questions)}")
        content = b""
        async for part in request.stream():
            content += part
            if len(content) > _MOST_BYTES:
                raise HTTPException(413, f"a request may have at most {_MOST_BYTES:,} bytes")
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            raise HTTPException(400, "the request is not JSON") from None
        if not isinstance(body, dict):
            raise HTTPException(400, "the request must be a JSON object")
        return await run_in_threadpool(answer, lambda: page.questions[name](body))

    def failure(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code)

    routes = [
        Route(f"/{token}/", file),
        Route(f"/{token}/api/model", lambda _: answer(page.describe)),
        Route(f"/{token}/api/{{name}}", question, methods=["POST"]),
        Route(f"/{token}/{{name}}", file),
    ]
    frames = f"http://localhost:* http://{HOST}:*" if framed else "'none'"
    return _guarded(Starlette(routes=routes, exception_handlers={HTTPException: failure}), token, frames)


def _guarded(app: ASGIApp, token: str, frames: str) -> ASGIApp:
    """The application with a check of the token, and with headers that forbid what the page does not need."""
    from starlette.datastructures import MutableHeaders
    from starlette.responses import JSONResponse

    headers = _HEADERS | {"content-security-policy": _POLICY + frames}
    refusal = JSONResponse({"error": "use the address that the explorer printed when it started; it has a token"}, 403)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        welcome = scope["type"] != "http" or _welcome(scope, token)
        await (app if welcome else refusal)(scope, receive, send_guarded)

    return guarded


def _welcome(scope: Scope, token: str) -> bool:
    """Whether a request has the token, and was sent to this computer by its own name."""
    parts = scope["path"].split("/")
    given = parts[1] if len(parts) > 2 else ""
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    return (host.rpartition(":")[0] or host) in (HOST, "localhost") and secrets.compare_digest(
        given.encode(), token.encode()
    )


def count_of(request: Answer, name: str, default: int, *, least: int = 1, most: int) -> int:
    """An integer in a request."""
    return check_integer(name, request.get(name, default), least, most)


def plain_values(values: Iterable[Any]) -> list[Any]:
    """Values as JSON values; missing ones are None."""
    found = (value.item() if isinstance(value, np.generic) else value for value in values)
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in found]


def _listen(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(128)  # so that a browser waits if the server is not ready yet
    except (OSError, OverflowError) as error:
        found.close()
        raise ArgumentError("port", "a free port, or 0 for any", port, str(error)) from None
    return found
