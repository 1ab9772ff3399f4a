# SPDX-License-Identifier: Apache-2.0
"""Several processes train the model that one process trains, and say so when one of them is gone."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist

import picirc as pc
from picirc.learning.processes import Processes, name_of_start
from picirc.structure.information import mutual_information
from picirc.tables import streaming
from processes import CONTEXT

ROWS = 301


def data() -> torch.Tensor:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(ROWS, 1))
    values = (hidden + rng.normal(size=(ROWS, 4)) > 0).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = np.nan
    return torch.from_numpy(values)


def train(kind: str, size: int | None) -> dict[str, torch.Tensor]:
    """The parameters after a few steps with batches of some size."""
    source = torch.Generator().manual_seed(0)
    options = {"batch_size": size, "steps": 5, "validate_every": 5}
    if kind == "em":
        model = pc.HCLT(pc.chain(4), pc.Bernoulli(), states=3, generator=source).double()
        return pc.fit_em(model, data(), **options)[0].state_dict()
    model = pc.PIC(pc.chain(4), pc.Bernoulli(), width=8, generator=source).double()
    return pc.fit(model, data(), rule=pc.shifted(4), clip=1.0, **options)[0].state_dict()


def small_streams() -> None:
    """Stream tables of any size, dealt out to two shards however many processes there are."""
    streaming.MOST_CELLS = 0
    streaming._FEWEST_POOLED, streaming._POOLED_CELLS = 100, 0
    streaming.StreamBatches = partial(streaming.StreamBatches, shards=2)  # type: ignore[misc,assignment]


def train_stream(folder: Path) -> dict[str, torch.Tensor]:
    small_streams()
    options = {"points": 4, "width": 8, "steps": 5, "settings": {"members": 1, "batch_size": 17}}
    return pc.fit_table(folder, **options).pic.state_dict()


def stream_information(folder: Path) -> dict[str, torch.Tensor]:
    small_streams()
    data = streaming.read_data(folder, 0)
    schema = data.schema(None, "error", 0.05)
    rows = data.parts(schema, schema.encode(data.frame), np.arange(0))
    return {"information": torch.from_numpy(mutual_information(rows, ["gaussian", "ordinal", "categorical"]))}


def write_table(folder: Path) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=1500)
    columns = {"a": hidden, "b": hidden + rng.normal(size=1500), "k": np.where(hidden > 0.5, "x", "y")}
    pq.write_table(pa.table(columns), folder / "t.parquet", row_group_size=200)


def join(rank: int, count: int, port: int) -> None:
    """What torchrun tells the processes that it starts."""
    os.environ |= {"WORLD_SIZE": str(count), "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)


def work(rank: int, count: int, port: int, out: Path, calls: list) -> None:
    join(rank, count, port)
    for place, (function, arguments) in enumerate(calls):
        torch.save(function(*arguments), out / f"{place}-{rank}.pt")


def together(count: int, out: Path, calls: list) -> list[list[dict[str, torch.Tensor]]]:
    """What each process returns, for each call."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    processes = [CONTEXT.Process(target=work, args=(rank, count, port, out, calls)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * count
    return [[torch.load(out / f"{place}-{rank}.pt") for rank in range(count)] for place in range(len(calls))]


def test_processes_train_the_model_of_one_whatever_the_size_of_a_batch(tmp_path):
    """Sizes that do not divide by the number of processes, and one with fewer rows than processes."""
    calls = [(train, (kind, size)) for kind in ("gradient", "em") for size in (1, 7)]
    calls.append((train, ("em", None)))
    for (_, arguments), found in zip(calls, together(2, tmp_path, calls), strict=True):
        expected = train(*arguments)
        for own in found:
            for name, value in expected.items():
                torch.testing.assert_close(own[name], value, rtol=1e-8, atol=1e-9, msg=f"{arguments}: {name}")


def test_processes_train_on_row_groups_of_their_own_the_model_of_one(tmp_path, monkeypatch):
    write_table(tmp_path)
    for name in ("MOST_CELLS", "_FEWEST_POOLED", "_POOLED_CELLS", "StreamBatches"):
        monkeypatch.setattr(streaming, name, getattr(streaming, name))  # to be restored
    expected = train_stream(tmp_path) | stream_information(tmp_path)
    found = together(2, tmp_path, [(train_stream, (tmp_path,)), (stream_information, (tmp_path,))])
    for trained, informed in zip(*found, strict=True):
        own = trained | informed
        for name, value in expected.items():
            torch.testing.assert_close(own[name], value, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(own["information"], expected["information"], rtol=1e-9, atol=1e-9)


def test_parts_differ_by_one_row_at_most_and_are_the_batch():
    for rows in range(12):
        batch = torch.arange(rows)
        parts = [Processes(rank, 5).part(batch) for rank in range(5)]
        assert torch.equal(torch.cat(parts), batch)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def leave(rank: int, port: int, out: Path) -> None:
    join(rank, 2, port)
    model = pc.HCLT(pc.chain(4), pc.Bernoulli(), states=3, generator=torch.Generator().manual_seed(0))

    def callback(record):
        if rank == 1:
            os._exit(9)  # as if it was killed

    try:
        pc.fit(model, data(), batch_size=8, steps=10**6, validate_every=2, patience=None, callbacks=[callback])
    except ConnectionError as error:
        out.write_text(str(error))
        os._exit(0)


@pytest.mark.filterwarnings("default")
def test_a_process_that_dies_is_an_error_of_the_others(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    processes = [CONTEXT.Process(target=leave, args=(rank, port, tmp_path / "said")) for rank in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 9]
    assert "another process of this training has ended" in (tmp_path / "said").read_text()
    assert "--resume" in (tmp_path / "said").read_text()


def test_all_processes_of_a_start_agree_on_a_new_name():
    """The store outlives the processes: it has questions of one that has ended, and the answers of earlier starts."""
    store, names = dist.HashStore(), set()
    store.set("question/1", "of a process that has ended")
    for _ in range(3):
        with ThreadPoolExecutor(3) as pool:  # the first process comes last
            found = set(pool.map(lambda rank: name_of_start(store, rank, 3), (2, 1, 0)))
        assert len(found) == 1
        names |= found
    assert len(names) == 3


def restarted(rank: int, port: int, out: Path) -> None:
    """A process that torchrun has started, which holds the store itself."""
    join(rank, 2, port)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    out.write_text(str(Processes.current().gather(rank)))


@pytest.mark.filterwarnings("default")
def test_processes_that_are_started_again_find_each_other(tmp_path):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for start in range(3):
        outs = [tmp_path / f"{start}-{rank}" for rank in (0, 1)]
        processes = [CONTEXT.Process(target=restarted, args=(rank, store.port, outs[rank])) for rank in (1, 0)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
            process.kill()
        assert [out.read_text() for out in outs] == ["[0, 1]"] * 2
