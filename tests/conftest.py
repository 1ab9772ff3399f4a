# SPDX-License-Identifier: Apache-2.0
"""What every test shares: one thread, one seed, no window."""

from __future__ import annotations

import gc
import os

# Set before anything is imported: no figure opens a window, and the two processes of the tests have a core each.
os.environ |= {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

# Examples are the same in every run and are not timed: a slow machine is no reason to fail.
settings.register_profile("picirc", deadline=None, derandomize=True)
settings.load_profile("picirc")


LONG = {"test_docs.py", "test_experiments.py", "test_explorer_browser.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests come first, so that no process is left alone with one at the end."""
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_collection_finish() -> None:
    """What was imported and collected stays until the end; the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def generator() -> torch.Generator:
    """A random generator that starts from the same seed in every test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def run(capsys):
    """Runs a command in this process: its exit code and what it printed."""
    from picirc.cli import main

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call
