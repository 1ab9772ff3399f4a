# SPDX-License-Identifier: Apache-2.0
"""The campaign: attacks on files, processes, kernels, memory and reports, and one table of what did not hold.

Every attack runs in a process of its own, so that one that dies is a line of the table and not the end of it.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection

from count import Count, SkippedError

ATTACKS = (
    ("model files, damaged", "model_files", "damaged_bytes"),
    ("model files, hostile", "model_files", "hostile_descriptions"),
    ("models of tables, hostile", "model_files", "hostile_tables"),
    ("models of sequences, hostile", "model_files", "hostile_sequences"),
    ("tables, hostile", "tables", "hostile_files"),
    ("tables, far too large", "tables", "enormous_files"),
    ("killed while saving", "processes", "killed_saving"),
    ("killed while fitting", "processes", "killed_fitting"),
    ("killed while scoring", "processes", "killed_scoring"),
    ("killed while resuming", "processes", "killed_resuming"),
    ("killed while scoring a folder", "folders", "killed_mapping"),
    ("killed ranks under torchrun", "ranks", "killed_ranks"),
    ("Ctrl-C", "processes", "interrupted"),
    ("full disk", "processes", "full_disk"),
    ("two writers", "processes", "two_writers"),
    ("planted or broken kernels", "kernels", "planted_libraries"),
    ("sanitizers: kernel tests", "kernels", "sanitized_tests"),
    ("sanitizers: threads and fork", "kernels", "sanitized_circuits"),
    ("results held for 1,000 calls", "memory", "held_results"),
    ("memory over 20,000 calls", "memory", "steady_memory"),
    ("requests to the explorer", "explorer", "hostile_requests"),
    ("hostile names in a report", "reports", "hostile_names"),
)


def run_attack(module: str, name: str, seed: int, scale: float, back: Connection) -> None:
    """Run one attack in this process, and send back what it counted."""
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        found: Count = getattr(importlib.import_module(module), name)(seed, scale)
        back.send((found.tried, found.failures, found.note))
    except SkippedError as error:
        back.send((0, [], f"skipped: {error}"))


def attempt(module: str, name: str, seed: int, scale: float) -> tuple[int, list[str], str]:
    """Run one attack in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=run_attack, args=(module, name, seed, scale, there))
    process.start()
    there.close()
    try:
        outcome: tuple[int, list[str], str] = here.recv()
    except EOFError:
        outcome = (0, ["the attack itself ended early"], "")
    process.join()
    return outcome


def main() -> int:
    """Run the campaign; the exit code is 1 if something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the tries, for a quick look")
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    arguments = parser.parse_args()
    total, started = 0, time.perf_counter()
    print(f"{'attack':<32} {'tried':>7} {'failed':>7} {'seconds':>8}  note")
    for title, module, name in ATTACKS:
        if arguments.only not in title:
            continue
        begun = time.perf_counter()
        tried, failures, note = attempt(module, name, arguments.seed, arguments.scale)
        total += len(failures)
        print(f"{title:<32} {tried:>7,} {len(failures):>7,} {time.perf_counter() - begun:>8.0f}  {note}", flush=True)
        for words in failures[:5]:
            print(f"    {words}", file=sys.stderr)
    print(f"{'all':<32} {'':>7} {total:>7,} {time.perf_counter() - started:>8.0f}  seed {arguments.seed}")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
