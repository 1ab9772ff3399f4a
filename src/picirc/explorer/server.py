# SPDX-License-Identifier: Apache-2.0
"""The server behind the page: this computer only, behind a token, and nothing is written."""

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
    from starlette.types import ASGIApp, Receive, Scope, Send

Answer = dict[str, Any]
Question = Callable[[Answer], Answer]

HOST = "127.0.0.1"
_FILES = {"": "text/html", "style.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}
_MOST_BYTES = 2**20  # of a request
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
)
_INSTALL = 'the explorer needs two more packages: pip install "picirc[web]"'

log = logging.getLogger(__name__)


class Page(Protocol):
    """A model as a page shows it."""

    @property
    def questions(self) -> Mapping[str, Question]:
        """What can be asked, by name; questions and answers are plain JSON values."""

    def describe(self) -> Answer:
        """What the page needs to know once; ``kind`` says which page it is."""


class Explorer:
    """A running explorer.

    Args:
        page: What it shows.
        port: The port; 0 for a free one.
        framed: Whether a notebook on this computer may show the page inside its own.

    Attributes:
        url: The address of the page; whoever has it can ask the model.
    """

    def __init__(self, page: Page, port: int = 0, *, framed: bool = False) -> None:
        try:
            import uvicorn
        except ImportError as error:
            raise ImportError(_INSTALL) from error
        token = secrets.token_urlsafe(16)
        self._socket = _listen(port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}/{token}/"
        app = application(page, token, framed=framed)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="picirc explorer", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Return when the server has stopped; Ctrl-C stops it."""
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
    """The page, its files and its questions below ``/token/``; anything else is refused."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    frames = f"http://localhost:* http://{HOST}:*" if framed else "'none'"
    lock = threading.Lock()  # a circuit keeps its buffers between queries

    def file(request: Request) -> Response:
        name = request.path_params.get("name", "")
        if name not in _FILES:
            return _json({"error": f"there is no file {name!r}"}, 404, frames)
        content = files("picirc.explorer").joinpath("static", name or "index.html").read_bytes()
        return _respond(content, f"{_FILES[name]}; charset=utf-8", 200, frames)

    def model(_: Request) -> Response:
        return _json(*_answer(page.describe, lock), frames)

    async def question(request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool

        name = request.path_params["name"]
        if name not in page.questions:
            return _json({"error": f"there is no question {name!r}; ask {', '.join(page.questions)}"}, 404, frames)
        body, error = await _body(request)
        if error is not None:
            return _json(*error, frames)
        answer, status = await run_in_threadpool(_answer, lambda: page.questions[name](body), lock)
        return _json(answer, status, frames)

    def wrong(_: Request, error: Exception) -> Response:
        return _json({"error": getattr(error, "detail", "bad request")}, getattr(error, "status_code", 400), frames)

    routes = [
        Route(f"/{token}/", file),
        Route(f"/{token}/api/model", model),
        Route(f"/{token}/api/{{name}}", question, methods=["POST"]),
        Route(f"/{token}/{{name}}", file),
    ]
    inner = Starlette(routes=routes, exception_handlers={404: wrong, 405: wrong})

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _welcome(scope, token):
            refusal = "open the address that the explorer printed when it started; it holds a token"
            await _json({"error": refusal}, 403, frames)(scope, receive, send)
            return
        await inner(scope, receive, send)

    return guarded


def _welcome(scope: Scope, token: str) -> bool:
    """Whether a request has the token, and was sent to this computer by its own name."""
    parts = scope["path"].split("/")
    given = parts[1] if len(parts) > 2 else ""
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1").rpartition(":")[0] or headers.get(b"host", b"").decode("latin-1")
    return host in (HOST, "localhost") and secrets.compare_digest(given.encode(), token.encode())


def count_of(request: Answer, name: str, default: int, *, least: int = 1, most: int) -> int:
    """An integer in a request."""
    return check_integer(name, request.get(name, default), least, most)


def plain_values(values: Iterable[Any]) -> list[Any]:
    """Values as JSON has them; missing ones are null."""
    found = (value.item() if isinstance(value, np.generic) else value for value in values)
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in found]


async def _body(request: Request) -> tuple[Answer, tuple[Answer, int] | None]:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _MOST_BYTES:
            return {}, ({"error": f"a request may have at most {_MOST_BYTES:,} bytes"}, 413)
    try:
        body = json.loads(content)
    except ValueError:
        return {}, ({"error": "the request is not JSON"}, 400)
    if not isinstance(body, dict):
        return {}, ({"error": "the request must be a JSON object"}, 400)
    return body, None


def _answer(ask: Any, lock: threading.Lock) -> tuple[Answer, int]:
    """The answer to a question and its status; an error is an answer in words."""
    try:
        with lock, torch.no_grad():
            return ask(), 200
    except (ValueError, NotImplementedError) as error:
        return {"error": str(error)}, 400
    except Exception:
        log.exception("a question could not be answered")
        return {"error": "the model could not answer; the terminal of the explorer says why"}, 500


def _json(value: Answer, status: int, frames: str) -> Response:
    try:
        content = json.dumps(value, allow_nan=False)
    except ValueError:
        content, status = json.dumps({"error": "the answer is not a finite number"}), 400
    return _respond(content.encode(), "application/json", status, frames)


def _respond(content: bytes, media: str, status: int, frames: str) -> Response:
    from starlette.responses import Response

    headers = {
        "content-security-policy": _POLICY.format(frames=frames),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
        "cross-origin-resource-policy": "same-origin",
    }
    return Response(content, status, headers, media_type=media)


def _listen(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(128)  # so that a browser that is quicker than the server waits
    except (OSError, OverflowError) as error:
        found.close()
        raise ArgumentError("port", "a free port, or 0 for any", port, str(error)) from None
    return found
