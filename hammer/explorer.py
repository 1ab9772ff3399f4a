# SPDX-License-Identifier: Apache-2.0
"""Requests that say anything, sent to all pages of the explorer: an answer, or an error in words."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import Any

import numpy as np
import torch

import picirc as pc
from count import Count
from model_files import small_table_model
from picirc.explorer import make_page
from picirc.explorer.server import application

TOKEN = "token"
NAMES = ["size", "weight", "pet", "count", "flag", "rain", "pay", "x", "y", "nobody", "__proto__", ""]
WORDS = [
    "evidence",
    "n",
    "seed",
    "row",
    "pixels",
    "samples",
    "number",
    "x",
    "rule",
    "sequence",
    "until",
    "steps",
    "cells",
]
ODD: list[Any] = [
    *(None, True, -1, 0, 1, 3, 12, 10**9, 10**30, 0.5, -2.5, 1e308, -1e-320, "", "cat", "dog", "many", "\ud800", "1"),
    *([], {}, [[]], [None], [1, 2], {"is": 1}, {"is": "cat"}, {"in": ["cat"]}, {"in": [1, 2]}, {"from": 1, "to": 2}),
    *({"from": None, "to": 0}, {"from": 2, "to": None}, {"from": 5, "to": 1}, {"is": 0}, {"is": [1]}, {"from": 1}),
]


def hostile_requests(seed: int, scale: float) -> Count:
    """Each gets JSON with status 200, 400, 404 or 413, and nothing is written to the log."""
    source, count = random.Random(seed), Count()
    failures: list[str] = []
    logging.getLogger("picirc.explorer.server").addHandler(_Keep(failures))
    for page in _pages():
        app = application(page, TOKEN)
        for _ in range(int(500 * scale)):
            name = source.choice([*page.questions, *page.questions, "model", "nothing"])
            body = json.dumps(_request(source)).encode()
            if source.random() < 0.1:
                body = body[: source.randrange(len(body) + 1)] + source.randbytes(3)
            with count.attempt(f"{name} {body[:200]!r}"):
                status, content = asyncio.run(_send(app, name, body))
                said = json.loads(content)
                held = status == 200 or (status in (400, 404, 405, 413) and isinstance(said["error"], str))
                count.check(held, f"{name} {body[:200]!r}: {status} {content[:200]!r} {failures[-1:]}")
    return count


class _Keep(logging.Handler):
    def __init__(self, kept: list[str]) -> None:
        super().__init__()
        self.kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(repr(record.exc_info))


def _pages() -> list[Any]:
    rng = np.random.default_rng(0)
    model = small_table_model()
    rows = {name: [None, None] for name in model.schema.names} | {"size": [1.0, 4.0], "pet": ["cat", None]}
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 1.0}, std=0.5))
    pictures = pc.PIC(pc.chain(9), pc.Bernoulli(), width=4, generator=torch.Generator().manual_seed(0))
    series = {"x": rng.normal(size=30), "pet": ["cat", "dog"] * 15}
    chain = pc.fit_sequences(series, dims=1, steps=2, points=4, settings={"refit": False})
    return [
        make_page(model, rows),
        make_page(net),
        make_page(pictures, rng.integers(0, 2, (3, 9))),
        make_page(chain, series),
    ]


def _request(source: random.Random) -> Any:
    if source.random() < 0.1:
        return source.choice(ODD)
    evidence = {source.choice(NAMES): source.choice(ODD) for _ in range(source.choice([0, 1, 1, 2, 3]))}
    good = {
        "evidence": source.choice([evidence, [evidence], [evidence, {}]]),
        "x": evidence,
        "pixels": [source.choice([0, 1, None]) for _ in range(9)],
        "cells": {source.choice(["0", "7", "99", "x"]): {source.choice(NAMES): source.choice(ODD)}},
    }
    return {word: source.choice([good.get(word, 1), source.choice(ODD)]) for word in source.sample(WORDS, 6)} | (
        good if source.random() < 0.5 else {}
    )


async def _send(app: Any, name: str, body: bytes) -> tuple[int, bytes]:
    """Ask the application as a server would."""
    scope = {
        "type": "http", "method": "POST", "path": f"/{TOKEN}/api/{name}", "raw_path": b"", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:1")], "http_version": "1.1", "root_path": "", "scheme": "http",
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)
