# SPDX-License-Identifier: Apache-2.0
"""Measures a training; imports nothing that draws, so that a process of its own starts quickly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

import picirc as pc
from density import build, load_data, make_inputs, make_structure, train
from harness import Figures
from measure import peak

MOST_STEPS = 50  # of a repetition


def measure_training(settings: Mapping[str, Any], quick: bool, trees: Path, threads: int) -> Figures:
    """Seconds a step, the median over repetitions, and the memory that the training takes beyond the data."""
    torch.set_num_threads(threads)
    data = load_data(settings["data"], quick)
    structure = make_structure(settings["structure"], data, trees)
    small = {**settings, "states": 2, "batch": 4, "steps": 1}
    inputs = make_inputs(data, settings)
    # Loads the code and starts the threads, which are not what is measured.
    train(build(pc.chain(8), inputs, small), data.train[:8, :8], None, small)
    times: list[float] = []

    def repeat() -> None:
        steps = 1
        for _ in range(1 + settings["repetitions"]):
            model = build(structure, inputs, settings)
            _, history = train(model, data.train, None, {**settings, "steps": steps})
            times.append(history.records[-1]["seconds"] / steps)
            steps = min(max(2, int(settings["budget"] / times[-1])), MOST_STEPS)

    memory = peak(repeat, times=1)
    return {"seconds": median(times[1:]), "first_step": times[0], "gib": memory / 2**30, "peak_bytes": memory}
