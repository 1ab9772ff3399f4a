"""Models of small public tables: held-out likelihood and imputation error against the usual methods.

``make bench-tables`` prints both comparisons, losses as well as wins, and writes them to ``benchmarks/results/``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

import numpy as np
import pandas as pd

import picirc as pc
from report import write
from table_data import dequantised, load, names, quantities
from table_rivals import DENSITIES, IMPUTERS, chow_liu, impute

TESTED = 0.2  # of the rows
HIDDEN = (0.1, 0.3, 0.5)  # of the cells
TIE = 0.02  # relative differences of errors, and differences of nats for each row, below this decide nothing

Scores = dict[str, float]


def main() -> None:
    options = _options()
    records = []
    for name in options.tables:
        for split in range(options.splits):
            records.append({"table": name, "split": split, "likelihood": likelihood(name, split)})
            for hidden in HIDDEN:
                errors = imputation(name, split, hidden)
                records.append({"table": name, "split": split, "hidden": hidden, "imputation": errors})
        print(f"  {name} done", flush=True)
    print(*table(records, "likelihood", "nats a row of held-out quantities, larger is better"), sep="\n")
    print(*table(records, "imputation", "root mean square error of hidden quantities, smaller is better"), sep="\n")
    write(options.output, "tables", {"splits": options.splits, "tested": TESTED, "records": records})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tables", nargs="+", default=names(), choices=names())
    parser.add_argument("--splits", type=int, default=3, help="random parts into training and test rows")
    parser.add_argument("--output", type=Path, help="where to write the figures")
    return parser.parse_args()


def likelihood(name: str, split: int) -> Scores:
    """The mean log-density of held-out rows under each method, all fitted to the same standardised rows."""
    source = np.random.default_rng([split, 0])
    rows = source.permutation(dequantised(quantities(load(name)), source))
    count = round(TESTED * len(rows))
    test, train = rows[:count], rows[count:]
    centre, spread = train.mean(0), train.std(0)
    train, test = (train - centre) / spread, (test - centre) / spread
    found = {method: score(train, test) for method, score in DENSITIES.items()}
    found["Chow–Liu"] = chow_liu(*(pd.DataFrame(part).rename(columns=str) for part in (train, test)))
    return {"PIC": float(pc.fit_table(train).log_density(test).mean()), **found}


def imputation(name: str, split: int, hidden: float) -> Scores:
    """The root mean square error of each method on quantities hidden at random, in standard deviations."""
    frame = load(name)
    real = list(frame.select_dtypes("float"))
    frame[real] = (frame[real] - frame[real].mean()) / frame[real].std()
    gone = np.random.default_rng([split, round(100 * hidden)]).random(frame.shape) < hidden
    holes = frame.mask(gone)
    known = frame[real].notna().to_numpy() & gone[:, [frame.columns.get_loc(column) for column in real]]
    filled = {"PIC": pc.fit_table(holes).impute(holes), **{method: impute(method, holes) for method in IMPUTERS}}
    return {
        method: float(np.sqrt(np.mean((table[real].to_numpy(float) - frame[real].to_numpy())[known] ** 2)))
        for method, table in filled.items()
    }


def table(records: list[Mapping[str, object]], kind: str, title: str) -> list[str]:
    """A line for each table (and part hidden), with a verdict for each rival: win, tie or loss of the PIC."""
    lines, verdicts = [f"\n{title}"], []
    groups: dict[tuple[object, ...], list[Scores]] = {}
    for record in records:
        if kind in record:
            groups.setdefault((record["table"], record.get("hidden", "")), []).append(record[kind])  # type: ignore[arg-type]
    for key, scores in groups.items():
        means = {method: mean(score[method] for score in scores) for method in scores[0]}
        ours = means.pop("PIC")
        cells = [f"{method} {value:8.3f} {_verdict(kind, ours, value)}" for method, value in means.items()]
        verdicts += [_verdict(kind, ours, value) for value in means.values()]
        lines.append(f"{key[0]!s:<14} {key[1]!s:<4} PIC {ours:8.3f}   " + "   ".join(cells))
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("win", "tie", "loss"))
    return [*lines, f"in all: {counts}"]


def _verdict(kind: str, ours: float, theirs: float) -> str:
    ahead = ours - theirs if kind == "likelihood" else (theirs - ours) / theirs
    return "tie" if abs(ahead) < TIE else "win" if ahead > 0 else "loss"


if __name__ == "__main__":
    main()
