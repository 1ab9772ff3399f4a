# SPDX-License-Identifier: Apache-2.0
"""The Penn Tree Bank by one homogeneous chain: bits per position of rows of 288 characters, as for the trees."""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch

import picirc as pc
from picirc.sequences.chain import Batch
from picirc.sequences.dynamics import SequencePIC, initialise, normal_points


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    data = pc.data.load("ptb-288", options.data_dir)
    source = torch.Generator().manual_seed(0)
    train = [_cut(row) for row in torch.from_numpy(data.train.copy())]
    model = SequencePIC(
        [pc.Categorical(data.categories)], options.dims, options.width, options.rank, options.points, generator=source
    )
    initialise(model, [row.double() for row in train[:400]])
    optimizer = torch.optim.Adam(model.parameters(), options.rate, (0.9, 0.98))
    started, best = time.perf_counter(), math.inf
    valid = _batch(torch.from_numpy(data.valid[: options.valid].copy()).double())
    for step in range(1, options.steps + 1):
        turn = min(1.0, step / (0.05 * options.steps)) * (1 + math.cos(math.pi * step / options.steps)) / 2
        optimizer.param_groups[0]["lr"] = max(options.rate * turn, 0.01 * options.rate)
        rows = torch.randperm(len(train), generator=source)[: options.batch].tolist()
        batch = Batch.of([train[i].float() for i in rows], [torch.ones(len(train[i])) for i in rows])
        shift = torch.rand(model.dims, generator=source) if options.shifted else None
        loss = -model(normal_points(model.points, model.dims, shift)).log_steps(batch).sum() / len(batch.x)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % options.every == 0 or step == options.steps:
            bits = _bits(model, valid, options.refine)
            best = min(best, bits)
            seconds = time.perf_counter() - started
            print(f"{step} train {float(loss) / math.log(2):.3f} valid {bits:.4f} {seconds:.0f} s", flush=True)
    tests = torch.from_numpy(data.test.copy()).double()
    found = [_bits(model, _batch(part), options.refine) * len(part) for part in tests.split(256)]
    count = sum(p.numel() for p in model.parameters())
    result = {"bits": sum(found) / len(tests), "parameters": count, "seconds": time.perf_counter() - started}
    print(json.dumps(result | vars(options)))
    if options.out:
        Path(options.out).write_text(json.dumps(result | vars(options), indent=1) + "\n")


def _cut(row: torch.Tensor) -> torch.Tensor:
    """A sentence with some signs of padding, which are enough to learn that padding stays."""
    length = int((row != 0).sum())
    return row[: length + 12].double().unsqueeze(1)


def _batch(rows: torch.Tensor) -> Batch:
    return Batch.of([row.unsqueeze(1) for row in rows], [torch.ones(rows.shape[1])] * len(rows))


@torch.no_grad()
def _bits(model: SequencePIC, batch: Batch, refine: int) -> float:
    chain = model(normal_points(refine * model.points, model.dims))
    return -float(chain.passes(batch)[0].double().mean()) / math.log(2)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, default=8)
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-3)
    parser.add_argument("--valid", type=int, default=128)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--refine", type=int, default=1, help="points of the evaluation per point of the training")
    parser.add_argument("--shifted", action="store_true", help="another grid at every step")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data-dir")
    parser.add_argument("--out")
    return parser.parse_args()


if __name__ == "__main__":
    main()
