# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from picirc.data import datasets
from picirc.data.datasets import SETS


class Server(ThreadingHTTPServer):
    """Answers on this machine only.

    ``answers`` maps a path to the bytes of the answer, to a status, or to bytes and a length that is claimed; -1 claims
    none.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, bytes | int | tuple[bytes, int | str]] = {}
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        answer = self.server.answers.get(self.path, 404)
        if isinstance(answer, int):
            self.send_error(answer)
            return
        content, claimed = answer if isinstance(answer, tuple) else (answer, len(answer))
        self.send_response(200)
        if claimed != -1:
            self.send_header("Content-Length", str(claimed))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No data folder of the user's, and a cache of its own, which does not exist yet."""
    monkeypatch.delenv("PICIRC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "picirc"


@pytest.fixture(autouse=True)
def _small_files(request, monkeypatch):
    """Let small files stand for those of the known sets, but for the tests of the checksums themselves."""
    if "checksums" in request.keywords:
        return
    monkeypatch.setattr(datasets, "verify_present", lambda path, file: None)
    for name, known in SETS.items():
        monkeypatch.setitem(SETS, name, replace(known, archive_sha256=""))
