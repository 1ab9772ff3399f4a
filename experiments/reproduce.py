# SPDX-License-Identifier: Apache-2.0
"""Reproduce a figure or table of the paper: ``python experiments/reproduce.py NAME``.

What has been recorded is not run again, and what was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import cast

import torch

from harness import HERE, Budget, Experiment, Runner, chosen

NAMES = (
    *("images", "best", "binomial", "steps", "seeds", "ptb", "cost", "fourier", "heatmaps"),
    *("binary", "grids", "regions", "search", "schedules"),
)


def experiment(name: str) -> Experiment:
    """The module of an experiment."""
    return cast(Experiment, import_module(f"{name}.run"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, then draw; 0 when nothing failed, 130 when it was interrupted by hand."""
    options = _options(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    module = experiment(options.name)
    root = options.out or (HERE / "runs" / "quick" if options.quick else HERE)
    budget = Budget(options.minutes)
    runner = Runner(options.name, root, options.quick, budget)
    jobs = module.jobs(options.quick)
    if options.list:
        done = {record["key"] for record in runner.records(jobs)}
        print(*(f"{'done' if job.key in done else '    '}  {job.key}" for job in chosen(jobs, options.only)), sep="\n")
        return 0
    status = 0
    if not options.figure_only:
        try:
            status = 0 if runner.run(chosen(jobs, options.only)) else 1
        except KeyboardInterrupt:
            status = 130 if budget.left else 0
    records = runner.records(jobs)
    print(f"{len(records)} of {len(jobs)} jobs of {options.name} are recorded in {runner.folder}")
    if len(records) < len(jobs):
        print("run it again to go on")
    if records:
        module.draw(records, runner.folder)
        print(module.summary(records))
    return status


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this; run again to go on")
    parser.add_argument("--quick", action="store_true", help="a trial: little data, few points, few steps")
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY", help="these jobs; * stands for anything")
    parser.add_argument("--figure-only", action="store_true", help="draw what is recorded, run nothing")
    parser.add_argument("--list", action="store_true", help="show the jobs and which are done")
    parser.add_argument("--threads", type=int, help="by default as many as torch takes")
    parser.add_argument("--out", type=Path, help="where the folders of the experiments are")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
