# SPDX-License-Identifier: Apache-2.0
"""Rows per second of scoring, imputing and sampling, and learning from Parquet files that grow.

Every fit runs in a process of its own, which reports its time and its peak memory. The table is made on the fly.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
COLUMNS, CHUNK, GROUP = 20, 500_000, 100_000
SEED = 0


def make_rows(rows: int, seed: int) -> pa.Table:
    """Twelve correlated reals, four of them skewed, four counts and four columns of categories; 3 % are missing."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, 4))
    columns: dict[str, Any] = {}
    loads = np.random.default_rng(1).normal(size=(4, COLUMNS))
    for place in range(COLUMNS):
        values = hidden @ loads[:, place] + 0.5 * rng.normal(size=rows)
        if place >= 16:
            columns[f"k{place}"] = pa.array(np.digitize(values, [-1.5, 0, 1.5])).cast(pa.string())
            continue
        if place >= 12:
            values = rng.poisson(np.exp(np.clip(0.4 * values + 2, None, 6))).astype(np.float64)
        elif place >= 8:
            values = np.exp(0.5 * values)
        values[rng.random(rows) < 0.03] = np.nan
        columns[f"x{place}"] = pa.array(values, from_pandas=True)
    return pa.table(columns)


def write_table(folder: Path, rows: int) -> int:
    """A folder of files of half a million rows each; its bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, CHUNK)):
        table = make_rows(min(CHUNK, rows - start), SEED + number)
        pq.write_table(table, folder / f"{number:04}.parquet", row_group_size=GROUP)
    return sum(path.stat().st_size for path in folder.iterdir())


def fit(folder: Path, model: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Learn from a folder in this process, which should be new."""
    import torch

    import picirc as pc

    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, begun = time.perf_counter(), time.process_time()
    found = pc.fit_table(folder, **options)
    seconds, processor = time.perf_counter() - started, time.process_time() - begun
    found.save(model)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": seconds,
        "processor": processor,
        "kind": found.summary["kind"],
        "peak_mib": peak / 1024,
        "imports_mib": before / 1024,
        "log_density": found.summary["log_density"]["valid"],
    }


def in_process(function: Any, *arguments: Any) -> Any:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(function, *arguments).result()


def maps(model: Path, folder: Path, work: Path, workers: int) -> dict[str, float]:
    """Rows per second of the command line's maps, without the start of the processes."""
    import picirc as pc
    from picirc.tables.mapping import plan_spread

    found = {}
    for task in ("score", "impute", "sample"):
        source = folder
        if task == "sample":
            source = work / "unknown"
            source.mkdir(exist_ok=True)
            for path in sorted(folder.iterdir()):
                table = pq.read_table(path)
                blank = pa.table({f.name: pa.nulls(len(table), f.type) for f in table.schema})
                pq.write_table(blank, source / path.name)
        mapper = pc.mapper(model, task, **({"keep": []} if task == "sample" else {}))
        spread = plan_spread(mapper, source, work / f"{task}{workers}", workers=workers, overwrite=True)
        seen: list[tuple[float, int]] = []
        spread.run(lambda rows, seen=seen: seen.append((time.perf_counter(), rows)))
        busy = [at for at, rows in seen if rows]
        first = next(rows for _, rows in seen if rows)
        total = sum(each.rows for each in spread.fragments)
        found[task] = (total - first) / max(busy[-1] - busy[0], 1e-9)
    return found


def step_times(rank: int, count: int, port: int, batch: int, steps: int) -> dict[str, float]:
    """Seconds of a training step of some processes together: on the wall, and on this one's processor."""
    import torch

    import picirc as pc

    torch.set_num_threads(1)
    os.environ |= {"WORLD_SIZE": str(count), "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    marks = []
    table = make_rows(20_000, 7)
    pc.fit_table(
        table, steps=2 * steps, settings={"batch_size": batch, "validate_every": steps, "held_out": 0.0, "members": 1},
        callbacks=[lambda record: marks.append((time.perf_counter(), time.process_time()))],
    )  # fmt: skip
    (wall, processor), (later, busy) = marks
    return {"wall": (later - wall) / steps, "processor": (busy - processor) / steps}


def training_steps(batch: int, steps: int) -> dict[str, Any]:
    """The time of a step with one and with two processes, and the bytes that each sends in it."""
    import socket

    import picirc as pc

    found: dict[str, Any] = {"batch": batch}
    model = pc.fit_table(make_rows(2000, 7), steps=1, settings={"members": 1})
    found["bytes"] = 4 * sum(p.numel() for p in model.pic.parameters()) + 8
    for count in (1, 2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
            calls = [pool.submit(step_times, rank, count, port, batch, steps) for rank in range(count)]
            times = [call.result() for call in calls]
        found[f"{count} processes"] = {key: max(time[key] for time in times) for key in times[0]}
    return found


def rivals(rows: int) -> dict[str, float]:
    """The same with scikit-learn on the columns that are numbers."""
    import warnings

    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer
    from sklearn.mixture import GaussianMixture

    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"
    table = make_rows(rows, 99).to_pandas()
    numbers = table[[name for name in table if name.startswith("x")]].to_numpy(np.float64)
    whole = np.where(np.isnan(numbers), np.nanmean(numbers, 0), numbers)
    mixture = GaussianMixture(32, max_iter=20, random_state=0).fit(whole[:20_000])
    imputer = IterativeImputer(random_state=0).fit(numbers[:20_000])
    return {
        "GaussianMixture score": rows / _seconds(lambda: mixture.score_samples(whole)),
        "GaussianMixture sample": rows / _seconds(lambda: mixture.sample(rows)),
        "IterativeImputer transform": rows / _seconds(lambda: imputer.transform(numbers)),
    }


def _seconds(call: Any) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def plot(fits: list[dict[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
    rows = [entry["rows"] for entry in fits]
    left.loglog(rows, [entry["seconds"] for entry in fits], "o-")
    left.set(xlabel="rows", ylabel="seconds of a fit")
    right.semilogx(rows, [entry["peak_mib"] / 1024 for entry in fits], "o-")
    right.set(xlabel="rows", ylabel="peak memory (GiB)", ylim=(0, 2))
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def _fitted(size: int, work: Path, options: dict[str, Any]) -> dict[str, Any]:
    folder = work / "table"
    shutil.rmtree(folder, ignore_errors=True)
    started = time.perf_counter()
    written = write_table(folder, size)
    entry: dict[str, Any] = {"rows": size, "bytes": written, "made": time.perf_counter() - started}
    entry |= in_process(fit, folder, work / "model", options)
    print(
        f"{size:>12,} rows, {written / 2**20:,.0f} MiB: a {entry['kind']} in {entry['seconds']:.0f} s, "
        f"{entry['processor']:.0f} s of the processor, peak {entry['peak_mib']:,.0f} MiB",
        flush=True,
    )
    return entry


def _mapped(rows: int, work: Path) -> dict[str, Any]:
    folder = work / "mapped"
    folder.mkdir()
    for number in range(4):
        pq.write_table(make_rows(rows // 4, 50 + number), folder / f"{number}.parquet")
    found: dict[str, Any] = {"rows": rows}
    for workers in (1, 2):
        found[f"{workers} processes"] = maps(work / "model", folder, work, workers)
    found["one thread, by the processor's clock"] = in_process(pure, work / "model", folder / "0.parquet")
    found["scikit-learn, by the processor's clock"] = in_process(rivals, min(rows, 100_000))
    for name, pace in found.items():
        if isinstance(pace, dict):
            print(f"{name}: " + ", ".join(f"{k} {v:,.0f} rows/s" for k, v in pace.items()), flush=True)
    return found


def pure(model: Path, path: Path) -> dict[str, float]:
    """Rows per second of the processor, which other programs do not disturb."""
    import torch

    import picirc as pc

    torch.set_num_threads(1)
    table, found = pq.read_table(path).slice(0, 20_000), {}
    for task in ("score", "impute", "sample"):
        mapper = pc.mapper(model, task)
        mapper(table.slice(0, 10))
        if task == "sample":
            table = pa.table({f.name: pa.nulls(len(table), f.type) for f in table.schema})
        found[task] = len(table) / _seconds(lambda mapper=mapper, table=table: mapper(table))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1e4,1e5,1e6,1e7", help="rows of the tables to learn from")
    parser.add_argument("--map-rows", type=float, default=200_000, help="rows to score, impute and sample; 0 for none")
    parser.add_argument("--steps", type=int, default=None, help="steps of a training; by default those of fit_table")
    parser.add_argument("--work", type=Path, default=None, help="where a folder for the tables is made")
    parser.add_argument("--out", type=Path, default=HERE / "results" / f"scale-{time.strftime('%Y-%m-%d')}.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="picirc-scale-", dir=arguments.work) as work:
        measure(arguments, Path(work))


def measure(arguments: argparse.Namespace, work: Path) -> None:
    """Run everything, and write the results after each part."""
    options = {} if arguments.steps is None else {"steps": arguments.steps}
    found: dict[str, Any] = {"columns": COLUMNS, "cores": os.cpu_count(), "python": platform.python_version()}
    found |= {"load": os.getloadavg()[0], "steps": arguments.steps, "fits": []}

    def record() -> None:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")

    for size in (int(float(text)) for text in arguments.sizes.split(",")):
        found["fits"].append(_fitted(size, work, options))
        record()
        plot(found["fits"], arguments.out.with_suffix(".png"))
        if "maps" not in found and arguments.map_rows:
            found["maps"] = _mapped(int(arguments.map_rows), work)
            found["steps_of_training"] = training_steps(4096, 10)
            print(found["steps_of_training"], flush=True)
            record()


if __name__ == "__main__":
    main()
