# SPDX-License-Identifier: Apache-2.0
"""Model files that are damaged, or made by somebody who means harm: refused in words, or a sound model."""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors

import picirc as pc
from count import Count
from picirc.cli import main
from picirc.errors import ImpossibleEvidenceError
from picirc.io import files
from picirc.sequences import SequenceModel, fit_sequences
from picirc.tables import TableModel, fit_table

PERMITTED_MEMORY = 2**30  # bytes, over all files together
ODD: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 7, 64, 1016, 10**5, 10**9, 10**30, -(10**30), 0.5, -0.0, 1e-320, 1e308),
    *("", "cp", "tucker", "PIC", "Ensemble", "\x1b[31mred\x07", "\ud800", "a\nb", "%s", "../../etc/passwd"),
    *([], {}, [[]], {"kind": "RegionGraph"}, [0] * 50, [[0]] * 50),
]


def damaged_bytes(seed: int, scale: float) -> Count:
    """Bits flipped, parts cut out, repeated or replaced."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        contents = []
        for model in _models():
            pc.save(model, path)
            contents.append(path.read_bytes())
        for _ in range(int(4000 * scale)):
            path.write_bytes(_damage(source.choice(contents), source))
            with count.attempt("damaged bytes", (pc.ArgumentError,)):
                _use(pc.load(path))
    return _with_memory(count)


def hostile_descriptions(seed: int, scale: float) -> Count:
    """Descriptions and tensors that say anything, with checksums that agree."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        originals = []
        for model in _models():
            pc.save(model, path, summary={"note": 1})
            originals.append((pc.io.describe(path), load_tensors(path.read_bytes())))
        for _ in range(int(3500 * scale)):
            description, tensors = source.choice(originals)
            for _ in range(source.choice([1, 1, 1, 2, 4])):
                description = _mutate(description, source)
            if source.random() < 0.3:
                tensors = _mutate_tensors(tensors, source)
            with count.attempt(f"hostile description {json.dumps(description)[:300]}", (pc.ArgumentError,)):
                _write(path, description, tensors)
                _use(pc.load(path))
    return _with_memory(count)


def hostile_tables(seed: int, scale: float) -> Count:
    """The same for models of tables, which are also queried and inspected."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        model = small_table_model()
        model.summary |= {"maker": "picirc fit", "command": "picirc fit t.csv", "test": {"bits": 1.0}}
        model.save(path)
        original, tensors = pc.io.describe(path), load_tensors(path.read_bytes())
        for number in range(int(1000 * scale)):
            part = source.choice(["table", "table", "summary"])
            changed = original
            for _ in range(source.choice([1, 1, 2, 4])):
                changed = changed | {part: _mutate(changed.get(part), source)}
            words = f"hostile table {json.dumps(changed[part])[:300]}"
            with count.attempt(words, (pc.ArgumentError, ImpossibleEvidenceError)):
                _write(path, changed, tensors)
                found = TableModel.load(path)
                found.log_density({name: [None] for name in found.schema.names})
                found.sample(2, seed=0)
            if number % 2 and path.exists():
                with count.attempt(f"inspect: {words}"):
                    count.check(*_inspected(path, words))
    return _with_memory(count)


def hostile_sequences(seed: int, scale: float) -> Count:
    """The same for models of sequences."""
    source, count = random.Random(seed), Count()
    rng = np.random.default_rng(0)
    table = {"x": rng.normal(size=40), "pet": ["cat", "dog"] * 20, "day": np.arange(40.0)}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        fit_sequences(table, time="day", dims=1, steps=2, points=4, settings={"refit": False}).save(path)
        original, tensors = pc.io.describe(path), load_tensors(path.read_bytes())
        for _ in range(int(600 * scale)):
            changed = original
            for _ in range(source.choice([1, 1, 2, 4])):
                part = source.choice(["settings", "settings", "about", "schema"])
                changed = changed | {part: _mutate(changed[part], source)}
            own = _mutate_tensors(tensors, source) if source.random() < 0.3 else tensors
            words = f"hostile sequence model {json.dumps(changed)[:300]}"
            with count.attempt(words, (pc.ArgumentError, ImpossibleEvidenceError)):
                _write(path, changed, own)
                found = SequenceModel.load(path)
                assert not np.isnan(found.forecast({"x": [0.5, None], "day": [1.0, 2.0]}, 2).mean.get("x", 0)).any()
                found.sample(3)
    return _with_memory(count)


def small_table_model() -> TableModel:
    """A model with a column of every kind, hardly trained."""
    rng = np.random.default_rng(0)
    table = {
        "size": rng.normal(5, 2, 240),
        "weight": rng.normal(1, 2, 240),
        "pet": ["cat", "dog", "émeu", None] * 60,
        "count": rng.poisson(3, 240),
        "flag": rng.random(240) < 0.5,
        "rain": np.where(rng.random(240) < 0.4, 0.0, np.exp(rng.normal(size=240))),
        "pay": np.exp(2 * rng.normal(size=240)),
    }
    return fit_table(table, {"count": "poisson"}, steps=2, points=3, width=4, settings={"members": 1})


def _models() -> list[pc.PIC | pc.HCLT]:
    def source() -> torch.Generator:
        return torch.Generator().manual_seed(1)

    mixed = [
        pc.Gaussian(),
        pc.Categorical(3),
        pc.Bernoulli(),
        pc.Poisson(),
        pc.Binomial(5),
        pc.StudentT(),
        pc.Laplace(),
    ]
    tree, block = pc.random_tree(7, seed=0), pc.LatentTree((-1, 0), ((0, 1, 2), (3,)))
    members = [pc.PIC(pc.chain(3), pc.Bernoulli(), width=4, generator=source()) for _ in range(3)]
    return [
        pc.HCLT(tree, mixed, states=3, generator=source()),
        pc.PIC(tree, mixed, width=4, generator=source()),
        pc.PIC(block, pc.Gaussian(), width=4, correlated=True, generator=source()),
        pc.HCLT(pc.quad_graph(2, 3), pc.Bernoulli(), states=2, product="tucker", generator=source()),
        pc.PIC(pc.random_regions(5, seed=1, repetitions=2), pc.Bernoulli(), width=4, generator=source()),
        pc.Ensemble(members),
        pc.Ensemble([*members, pc.PIC(pc.star(3), pc.Bernoulli(), width=4, generator=source())], [1, 2, 3, 4]),
    ]


def _use(model: pc.PIC | pc.HCLT) -> None:
    """Queries of a model that was accepted: they answer in numbers."""
    with torch.no_grad():
        qpc = model() if isinstance(model, pc.HCLT) else model(pc.shifted(3))
        nothing = torch.full((1, len(model.families)), math.nan)
        assert float(qpc.log_prob(nothing)) < 0.01, "more than all probability"
        assert not qpc.log_prob(nothing).isnan().any(), "NaN for log 1"
        drawn = qpc.sample((3,), generator=torch.Generator().manual_seed(0))
        assert not drawn.isnan().any(), "NaN in a sample"


def _damage(content: bytes, source: random.Random) -> bytes:
    place, other = sorted(source.randrange(len(content)) for _ in range(2))
    match source.randrange(6):
        case 0:
            return content[:place]
        case 1:
            return content[:place] + content[other:]
        case 2:
            return content[:place] + content[place:other] * 2 + content[other:]
        case 3:
            return content[:place] + source.randbytes(source.randrange(40)) + content[place:]
        case 4:
            head = source.choice([0, 2**63, 2**32, len(content), source.randrange(10**6)])
            return head.to_bytes(8, "little") + content[8:]
    flipped = bytearray(content)
    for _ in range(source.choice([1, 1, 2, 8])):
        flipped[source.randrange(len(flipped))] ^= 1 << source.randrange(8)
    return bytes(flipped)


def _mutate(value: Any, source: random.Random) -> Any:
    """Change one thing somewhere in a JSON value."""
    if isinstance(value, dict) and value and source.random() < 0.9:
        key = source.choice(sorted(value))
        match source.randrange(8):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return value | {source.choice(["extra", "", "\x1b[2J", key * 2]): source.choice(ODD)}
        return value | {key: _mutate(value[key], source)}
    if isinstance(value, list) and value and source.random() < 0.9:
        place = source.randrange(len(value))
        match source.randrange(6):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return value[:place] + [value[place]] * source.choice([2, 300]) + value[place + 1 :]
        return [*value[:place], _mutate(value[place], source), *value[place + 1 :]]
    if isinstance(value, int) and source.random() < 0.5:
        return value + source.choice([-1, 1, 1000])
    return source.choice(ODD)


def _mutate_tensors(tensors: dict[str, torch.Tensor], source: random.Random) -> dict[str, torch.Tensor]:
    name = source.choice(sorted(tensors))
    numbers = [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e15, -1e15, 1e-45, 0.0, 100.0]
    changed = tensors[name].clone()
    match source.randrange(4):
        case 0:
            changed = torch.full_like(changed, source.choice(numbers))
        case 1:
            changed.view(-1)[source.randrange(changed.numel())] = source.choice(numbers)
        case 2:
            changed = changed.reshape(-1)
        case 3:
            return {k: v for k, v in tensors.items() if k != name} | {source.choice([name + "x", "é"]): changed}
    return tensors | {name: changed}


def _write(path: Path, description: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Write a file that says anything, with checksums that agree."""
    full = description
    if isinstance(description, dict) and "sha256" in description:
        full = description | {"sha256": files._checksum(tensors)}
    text = json.dumps({"sha256": files._sign(full), "description": full})
    path.write_bytes(files.save(dict(tensors), metadata={"picirc": text}))


def _inspected(path: Path, words: str) -> tuple[bool, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["inspect", str(path)])
    shown = (out.getvalue() + err.getvalue()).replace("\n", "")
    plain = all(letter.isprintable() for letter in shown)
    lines = err.getvalue().count("\n")
    return code in (0, 2) and plain and lines == (code == 2), f"{words}: {code}, {lines} lines, plain: {plain}"


def _with_memory(count: Count) -> Count:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    count.check(peak < PERMITTED_MEMORY, f"{peak / 2**30:.2f} GiB of memory")
    count.note = f"{peak / 2**20:.0f} MiB at most"
    return count
