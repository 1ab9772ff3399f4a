# SPDX-License-Identifier: Apache-2.0
"""The server: who may ask, and what a bad request gets."""

from __future__ import annotations

import json
import sys
import threading
import types
import urllib.error
import urllib.request

import pytest
from explorer_cases import network

import picirc as pc
from picirc.explorer.server import HOST


@pytest.fixture(scope="module")
def explorer(serve):
    return serve(network())


def fetch(url: str, body: object = None, **headers: str):
    """Status, headers and content of an answer."""
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(url, content, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_the_page_and_its_files_forbid_everything_from_elsewhere(explorer):
    for name, media in (("", "text/html"), ("app.js", "text/javascript"), ("style.css", "text/css")):
        status, headers, content = fetch(explorer.url + name)
        assert status == 200
        assert headers["content-type"].startswith(media)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert b"http://" not in content.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in content


def test_without_the_token_nothing_is_said(explorer):
    root = f"http://{HOST}:{explorer.port}"
    token = explorer.url.split("/")[3]
    assert len(token) >= 20
    for path in (
        "/",
        "/app.js",
        "/api/model",
        f"/{token[:-1]}/",
        f"/{token}x/api/model",
        f"/{token}",
        "//",
        "/favicon.ico",
    ):
        status, _, content = fetch(root + path)
        assert status == 403, path
        assert "token" in json.loads(content)["error"]


def test_another_host_name_is_refused(explorer):
    assert fetch(explorer.url, host="evil.example")[0] == 403
    assert fetch(explorer.url, host=f"localhost:{explorer.port}")[0] == 200


def test_it_listens_on_this_computer_only(explorer):
    assert explorer._socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("name", "body", "status", "words"),
    [
        ("nothing", {}, 404, "no question 'nothing'"),
        ("integrate", b"{", 400, "not JSON"),
        ("integrate", b"\xff\xfe", 400, "not JSON"),
        ("integrate", [1], 400, "JSON object"),
        ("integrate", {"x": 3}, 400, "x: expected values of x1, x2"),
        ("integrate", {"x": {"x1": "a"}}, 400, "x1: expected a number"),
        ("integrate", {"x": {}, "n": 10**9}, 400, "n: expected"),
        ("integrate", {"x": {}, "rule": ["a"]}, 400, "rule: expected one of"),
        ("integrate", b" " * 2**21, 413, "at most"),
    ],
)
def test_bad_requests_get_an_error_in_words(explorer, name, body, status, words):
    found, headers, content = fetch(f"{explorer.url}api/{name}", body)
    assert found == status
    assert headers["content-type"] == "application/json"
    answer = json.loads(content)
    assert words in answer["error"]
    assert "Traceback" not in answer["error"]


def test_wrong_methods_and_paths_get_json(explorer):
    assert json.loads(fetch(f"{explorer.url}api/integrate")[2]) == {"error": "Method Not Allowed"}
    status, _, content = fetch(f"{explorer.url}../../pyproject.toml")
    assert status in (403, 404)
    assert "error" in json.loads(content)


def test_a_failure_of_the_model_is_not_shown(serve, caplog):
    class Broken:
        def __init__(self):
            self.questions = {"ask": lambda _: 1 / 0, "infinite": lambda _: {"value": float("inf")}}

        def describe(self):
            raise ValueError("no description today")

    from picirc.explorer.server import Explorer

    explorer = Explorer(Broken())
    try:
        status, _, content = fetch(f"{explorer.url}api/ask", {})
        assert (status, b"division" in content) == (500, False)
        assert "ZeroDivisionError" in caplog.text
        assert fetch(f"{explorer.url}api/infinite", {})[0] == 400
        assert json.loads(fetch(f"{explorer.url}api/model")[2]) == {"error": "no description today"}
    finally:
        explorer.stop()


def test_many_ask_at_once(explorer):
    url, answers = f"{explorer.url}api/integrate", []

    def ask(n):
        answers.append((n, json.loads(fetch(url, {"x": {"x1": 0.1, "x2": 0.2}, "n": n})[2])["points"]))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4, 16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [(n, n) for n in range(4, 16)]


def test_explore_returns_a_running_page_and_stops(monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    explorer = pc.explore(network(), wait=False)
    assert opened == [explorer.url]
    assert fetch(explorer.url)[0] == 200
    assert explorer.url in explorer._repr_html_()
    explorer.stop()
    with pytest.raises(urllib.error.URLError):
        fetch(explorer.url)


def test_a_port_in_use_is_named(explorer):
    with pytest.raises(pc.ArgumentError, match="port: expected a free port"):
        pc.explore(network(), port=explorer.port, browser=False, wait=False)


def test_a_notebook_may_frame_the_page():
    from picirc.explorer import make_page
    from picirc.explorer.server import Explorer

    explorer = Explorer(make_page(network()), framed=True)
    try:
        assert "frame-ancestors http://localhost:*" in fetch(explorer.url)[1]["content-security-policy"]
    finally:
        explorer.stop()


def test_in_a_notebook_it_is_shown_inline_and_nobody_waits(monkeypatch):
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("a browser was opened"))
    explorer = pc.explore(network())
    try:
        assert explorer._repr_html_().startswith(f'<iframe src="{explorer.url}"')
        assert "frame-ancestors http://localhost:*" in fetch(explorer.url)[1]["content-security-policy"]
    finally:
        explorer.stop()


def test_the_command_serves_a_saved_model_until_interrupted(mixed, tmp_path, capsys, monkeypatch):
    from picirc.cli import main

    mixed[0].save(tmp_path / "model")
    rows = ["kind,length,weight,rings,old", "ash,10.5,20,4,false", "cedar,,30,9,true"]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    found = {}

    def wait(self):
        found["model"] = json.loads(fetch(f"{self.url}api/model")[2])
        self.stop()

    monkeypatch.setattr("picirc.explorer.server.Explorer.wait", wait)
    assert main(["explore", str(tmp_path / "model"), "--data", str(tmp_path / "rows.csv"), "--no-browser"]) == 0
    assert found["model"]["name"] == "model"
    assert found["model"]["rows"] == 2
    assert "http://127.0.0.1:" in capsys.readouterr().out
    assert main(["explore", str(tmp_path / "nowhere"), "--no-browser"]) == 2


def test_the_command_serves_a_model_of_sequences(weather, tmp_path, capsys, monkeypatch):
    from picirc.cli import main

    weather[0].save(tmp_path / "model")
    (tmp_path / "rows.csv").write_text("place,day,degrees,sky\nnorth,2024-03-01,9.5,sun\nnorth,2024-03-02,,rain\n")
    found = {}

    def wait(self):
        found["model"] = json.loads(fetch(f"{self.url}api/model")[2])
        found["rows"] = json.loads(fetch(f"{self.url}api/series", {})[2])
        self.stop()

    monkeypatch.setattr("picirc.explorer.server.Explorer.wait", wait)
    assert main(["explore", str(tmp_path / "model"), "--data", str(tmp_path / "rows.csv"), "--no-browser"]) == 0
    assert found["model"]["kind"] == "sequence"
    assert found["rows"]["values"]["degrees"] == [9.5, None]
    assert found["rows"]["times"] == ["2024-03-01", "2024-03-02"]
    assert main(["explore", str(tmp_path / "model"), "--no-browser"]) == 0
    assert found["model"]["drawn"]
