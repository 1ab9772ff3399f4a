# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: running a worker under each setting of the allocator, and writing down the result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from measure import ALLOCATORS, environment, origin

RESULTS = Path(__file__).parent / "results"

LEGEND = "Of two figures the first is under the allocator's default setting, the second while it keeps its memory."

Record = Mapping[str, Any]
Records = Mapping[str, list[Record]]


def measure_all(worker: str, task: Mapping[str, Any]) -> Records:
    """Give the task to a worker, a script beside this one, in one process for each setting of the allocator."""
    found = {}
    for allocator in ALLOCATORS:
        print(f"allocator: {allocator}", file=sys.stderr)
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name(worker))],
            input=json.dumps(task),
            stdout=subprocess.PIPE,
            env=environment(allocator, task["threads"]),
            text=True,
            check=True,
        )
        found[allocator] = json.loads(done.stdout)
    return found


def pairs(records: Records) -> list[tuple[Record, ...]]:
    """The records of one case under the different settings, side by side."""
    return list(zip(*records.values(), strict=True))


def side_by_side(records: tuple[Record, ...], text: Callable[[Record], str], width: int) -> str:
    """One figure under the different settings, in columns."""
    return " ".join(f"{text(record):>{width}}" for record in records)


def write(path: Path | None, name: str, result: Mapping[str, Any]) -> None:
    """Write figures and their origin as JSON, by default to a file named after the day."""
    whole = {**origin(), **result}
    path = path or RESULTS / f"{name}-{whole['date'][:10]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {path}")
