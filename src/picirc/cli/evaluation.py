"""``picirc eval``: how probable data are under a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from picirc.cli.options import DataOptions, QueryOptions
from picirc.cli.saved import make_circuit, open_model
from picirc.cli.tables import read_tables
from picirc.errors import ArgumentError
from picirc.learning import bits_per_dimension, mean_log_prob
from picirc.qpc.distribution import QPC


def print_scores(path: Path, data: DataOptions, query: QueryOptions) -> None:
    """Print a line for each part of the data."""
    saved = open_model(path)
    if saved.of_table:
        raise ArgumentError("model", "a model of data", f"{path}, the model of a table", "use picirc score")
    circuit = make_circuit(saved.model, query, saved.query)
    tables = read_tables(data, saved.notes.get("data"))
    print(f"{'part':<8}{'rows':>8}{'log-likelihood':>18}{'bits per dimension':>22}")
    for name, part in tables.parts.items():
        found = scores(circuit, part)
        print(f"{name:<8}{found['rows']:>8}{found['log_likelihood']:>18.4f}{found['bits']:>22.4f}")


def scores(circuit: QPC, rows: Any) -> dict[str, float]:
    """The number of rows, their mean log-likelihood in nats, and their bits per dimension."""
    mean = mean_log_prob(circuit, rows)
    return {"rows": len(rows), "log_likelihood": mean, "bits": bits_per_dimension(mean, rows.shape[1])}
