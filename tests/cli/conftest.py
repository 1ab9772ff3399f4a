# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from cli.table_cases import QUICK, rows, text
from picirc.cli import main


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text(rows()), encoding="utf-8", newline="")
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A model of the table, in a folder called model."""
    folder = tmp_path_factory.mktemp("fitted")
    (folder / "table.csv").write_text(text(rows()), encoding="utf-8", newline="")
    assert main(["fit", str(folder / "table.csv"), "--out", str(folder / "model"), *QUICK]) == 0
    return folder / "model"
