# SPDX-License-Identifier: Apache-2.0
"""Models of public tables against the usual methods: likelihood, imputation, classification, synthesis, anomalies.

``make bench-tables`` runs all jobs with default settings, the smallest tables first, and appends a line for each to
``benchmarks/results/tables.jsonl``; a job that has its line is not run again. Then it prints wins, ties and losses.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import IsolationForest
from sklearn.metrics import log_loss, roc_auc_score

import picirc as pc
from table_data import dequantised, is_for, label, load, names
from table_rivals import CLASSIFIERS, DENSITIES, IMPUTERS, SYNTHESISERS, categories, reals

OURS = "PIC"
TESTED = 0.2  # of the rows
HIDDEN = (0.1, 0.3, 0.5)  # of the cells
TIE = 0.02  # nats for each row, and relative differences of errors, below which nothing is decided
OUTPUT = Path(__file__).parent / "results" / "tables.jsonl"

Job = dict[str, Any]
Scores = dict[str, float]


def main() -> None:
    options = _options()
    if options.counts:
        print(*counts(_records(options.output)), sep="\n")
        return
    jobs = [job for job in _jobs(options) if job["task"] in options.tasks and _wanted(job, options.methods)]
    known = {_key(record) for record in _records(options.output)}
    until = time.monotonic() + 60 * options.minutes if options.minutes else np.inf
    for job in jobs:
        if _key(job) not in known and time.monotonic() < until:
            record = job | _run(job)
            with options.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
            print(json.dumps(record, ensure_ascii=False), flush=True)
    print(*summary(_records(options.output)), sep="\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tables", nargs="+", default=names(), choices=names())
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--methods", choices=("ours", "others", "all"), default="all")
    parser.add_argument("--splits", type=int, default=3, help="random parts into training and test rows")
    parser.add_argument("--minutes", type=float, help="start no job after this time; the next run goes on")
    parser.add_argument("--counts", action="store_true", help="run nothing; print wins, ties and losses as Markdown")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the file of finished jobs")
    return parser.parse_args()


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    for table in options.tables:
        for split in range(options.splits):
            for task, methods in ((task, TASKS[task]) for task in TASKS if is_for(table, task)):
                for setting in SETTINGS.get(task, ({},)):
                    for method in (OURS, *methods):
                        yield {"task": task, "table": table, "split": split, **setting, "method": method}


def _wanted(job: Job, methods: str) -> bool:
    return methods == "all" or (job["method"] == OURS) == (methods == "ours")


def _run(job: Job) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    try:
        scores: dict[str, Any] = RUN[job["task"]](job)
    except Exception as error:  # a rival that fails is part of the result
        scores = {"failed": "".join(traceback.format_exception_only(error)).strip()[:300]}
    return {"scores": scores, "seconds": round(time.perf_counter() - started, 1)}


def _key(job: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(job.get(name) for name in ("task", "table", "split", "hidden", "how", "method"))


def _records(path: Path) -> list[Job]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _parted(job: Job, frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test rows."""
    order = np.random.default_rng([job["split"], 0]).permutation(len(frame))
    count = round(TESTED * len(frame))
    test, train = (frame.iloc[part].reset_index(drop=True) for part in (order[:count], order[count:]))
    return train, test


def _split(job: Job, frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test rows, with quantities in standard deviations of the training rows."""
    train, test = _parted(job, frame)
    numbers = reals(frame)
    centre, spread = train[numbers].mean(), train[numbers].std()
    for part in (train, test):
        part[numbers] = (part[numbers] - centre) / spread
    return train, test


def likelihood(job: Job) -> Scores:
    """The mean log-density of held-out rows, whose quantities are spread over their steps."""
    whole = dequantised(load(job["table"]), np.random.default_rng([job["split"], 1]))
    train, test = _split(job, whole)
    for column in categories(train):  # what never occurred has no probability in some methods
        test = test[test[column].isin(train[column].unique())]
    if job["method"] == OURS:
        return {"nats": float(pc.fit_table(train).log_density(test).mean())}
    return {"nats": DENSITIES[job["method"]](train, test)}


def imputation(job: Job) -> Scores:
    """Root mean square error of hidden quantities in standard deviations, and the share of wrong categories."""
    frame = load(job["table"])
    frame = frame.sample(min(len(frame), 5000), random_state=job["split"]).reset_index(drop=True)
    numbers = reals(frame)
    frame[numbers] = (frame[numbers] - frame[numbers].mean()) / frame[numbers].std()
    gone = _hidden(frame, job) & frame.notna().to_numpy()
    holes = frame.mask(gone)
    model = pc.fit_table(holes) if job["method"] == OURS else None
    filled = model.impute(holes) if model else IMPUTERS[job["method"]](holes)
    places = [frame.columns.get_loc(name) for name in numbers]
    found = {}
    if numbers:
        difference = filled[numbers].to_numpy(float) - frame[numbers].to_numpy()
        found["error"] = float(np.sqrt(np.mean(difference[gone[:, places]] ** 2)))
    if others := categories(frame):
        wrong = filled[others].astype(str).to_numpy() != frame[others].astype(str).to_numpy()
        found["wrong"] = float(wrong[gone[:, [frame.columns.get_loc(name) for name in others]]].mean())
    if model:
        found["coverage"] = _coverage(model, frame, holes, gone)
    return found


def _hidden(frame: pd.DataFrame, job: Job) -> Any:
    """The cells to hide: at random, or the larger a quantity, the more likely."""
    source = np.random.default_rng([job["split"], round(100 * job["hidden"])])
    chance = np.full(frame.shape, job["hidden"])
    if job["how"] == "not at random":
        for place, column in enumerate(frame):
            if column in reals(frame):
                chance[:, place] *= 2 * frame[column].rank(pct=True).fillna(0.5)
    return source.random(frame.shape) < chance


def _coverage(model: pc.TableModel, frame: pd.DataFrame, holes: pd.DataFrame, gone: Any) -> float:
    """The share of hidden quantities between the 5 % and 95 % quantiles."""
    inside = []
    for column in reals(frame):
        rows = np.flatnonzero(gone[:, frame.columns.get_loc(column)])[:200]
        if len(rows):
            ends = model.quantiles(holes.iloc[rows], column, [0.05, 0.95])
            truth = frame[column].to_numpy()[rows]
            inside += ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).tolist()
    return float(np.mean(inside)) if inside else float("nan")


def classification(job: Job) -> Scores:
    """Log-loss, error and calibration, with all features, and with 30 % of them missing in the test rows."""
    name = label(job["table"])
    frame = load(job["table"]).dropna(subset=[name])
    train, test = _split(job, frame)
    X, y, Z, t = train.drop(columns=name), train[name], test.drop(columns=name), test[name]
    source = np.random.default_rng([job["split"], 2])
    masked = Z.mask(source.random(Z.shape) < 0.3)
    if job["method"] == "boosting, masked":
        X, y = pd.concat([X, X.mask(source.random(X.shape) < 0.3)]), pd.concat([y, y])
    model = pc.PICClassifier(unseen="missing") if job["method"] == OURS else CLASSIFIERS[job["method"].split(",")[0]]()
    model.fit(X, y)
    found = {}
    for part, rows in (("", Z), (" masked", masked)):
        chances = model.predict_proba(rows)
        best = chances.argmax(1)
        right = np.asarray(model.classes_)[best] == t.to_numpy()
        found[f"loss{part}"] = float(log_loss(t, chances.clip(1e-6, 1), labels=list(model.classes_)))
        found[f"error{part}"] = float(1 - right.mean())
        found[f"calibration{part}"] = float(abs(chances.max(1).mean() - right.mean()))
    return found


def _sampled(job: Job) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Complete training rows, at most 10,000 of them, and test rows, in their own units: years stay whole numbers."""
    train, test = _parted(job, load(job["table"]).dropna())
    return train.sample(min(len(train), 10_000), random_state=0).reset_index(drop=True), test


@lru_cache(1)
def _model(table: str, split: int) -> pc.TableModel:
    """Our model for the two tasks that ask one of whole rows."""
    return pc.fit_table(_sampled({"table": table, "split": split})[0], unseen="missing")


def synthesis(job: Job) -> Scores:
    """Shape and Trend of sdmetrics; how well boosting tells rows apart, and learns from them."""
    from sdmetrics.reports.single_table import QualityReport

    train, test = _sampled(job)
    if job["method"] == OURS:
        rows = _model(job["table"], job["split"]).sample(len(train), seed=0)
    else:
        rows = SYNTHESISERS[job["method"]](train, len(train))
    rows = rows[list(train)]
    kinds = {column: {"sdtype": "numerical" if column in reals(train) else "categorical"} for column in train}
    report = QualityReport()
    report.real_correlation_threshold = report.real_association_threshold = 0  # all pairs count, as papers have it
    report.generate(train, rows, {"columns": kinds}, verbose=False)
    found = dict(zip(("shape", "trend"), report.get_properties()["Score"].tolist(), strict=True))
    found["C2ST"] = _detection(train, rows)
    name = label(job["table"])
    judge = CLASSIFIERS["boosting"]().fit(rows.drop(columns=name), rows[name].astype(str))
    right = judge.predict(test.drop(columns=name)) == test[name]
    return found | {"accuracy learned": float(right.mean())}


def _detection(real: pd.DataFrame, drawn: pd.DataFrame) -> float:
    """1 − 2 max(0, AUC − ½) of boosting that tells real rows from others, in two halves."""
    both = pd.concat([real, drawn], ignore_index=True)
    truth = np.repeat(["real", "drawn"], [len(real), len(drawn)])
    half = np.random.default_rng(0).random(len(both)) < 0.5
    judge = CLASSIFIERS["boosting"]().fit(both[half], truth[half])
    place = list(judge.classes_).index("real")
    area = roc_auc_score(truth[~half] == "real", judge.predict_proba(both[~half])[:, place])
    return float(1 - 2 * max(0.0, area - 0.5))


def anomalies(job: Job) -> Scores:
    """The area under the curve for test rows with one cell from another row."""
    train, test = _sampled(job)
    source = np.random.default_rng([job["split"], 3])
    swapped = test.copy()
    for row in range(len(test)):
        column = test.columns[source.integers(len(test.columns))]
        swapped.loc[row, column] = test.loc[int(source.integers(len(test))), column]
    rows = pd.concat([test, swapped], ignore_index=True)
    if job["method"] == OURS:
        scores = -_model(job["table"], job["split"]).log_density(rows)
    else:
        coded = [pd.get_dummies(frame, dtype=float) for frame in (train, rows)]
        forest = IsolationForest(random_state=0).fit(coded[0])
        scores = -forest.score_samples(coded[1].reindex(columns=coded[0].columns, fill_value=0.0))
    return {"area": float(roc_auc_score(np.repeat([0, 1], len(test)), scores))}


TASKS: Mapping[str, tuple[str, ...]] = {
    "likelihood": tuple(DENSITIES),
    "classification": (*CLASSIFIERS, "boosting, masked"),
    "imputation": tuple(IMPUTERS),
    "anomalies": ("isolation forest",),
    "synthesis": tuple(SYNTHESISERS),
}
SETTINGS: Mapping[str, tuple[Job, ...]] = {
    "imputation": (
        *({"hidden": hidden, "how": "at random"} for hidden in HIDDEN),
        {"hidden": 0.3, "how": "not at random"},
    ),
}
RUN: Mapping[str, Callable[[Job], Scores]] = {
    "likelihood": likelihood,
    "imputation": imputation,
    "classification": classification,
    "synthesis": synthesis,
    "anomalies": anomalies,
}
LARGER = ("nats", "shape", "trend", "C2ST", "accuracy learned", "area")  # is better
JUDGED = (*LARGER, "error", "wrong", "loss", "error masked", "loss masked")


def summary(records: list[Job]) -> Iterator[str]:
    """For each score a line a table, with the mean, its standard error, and a verdict for each rival; then counts."""
    for task in TASKS:
        own = [record for record in records if record["task"] == task and "failed" not in record["scores"]]
        for score in JUDGED:
            lines = list(_lines([record for record in own if score in record["scores"]], score))
            if lines:
                yield f"\n{task}: {score}, {'larger' if score in LARGER else 'smaller'} is better"
                yield from lines


def counts(records: list[Job]) -> Iterator[str]:
    """The same as a table in Markdown: for each score and rival how many tables, or settings of them, are won."""
    yield "| | score | rival | won | tied | lost |"
    yield "|---|---|---|---|---|---|"
    for task in TASKS:
        own = [record for record in records if record["task"] == task and "failed" not in record["scores"]]
        for score in JUDGED:
            words: dict[str, list[str]] = {}
            for methods in _by_place([record for record in own if score in record["scores"]], score).values():
                ours = methods.pop(OURS)
                for method, theirs in methods.items():
                    words.setdefault(method, []).append(verdict(ours, theirs, score))
            for method, found in words.items():
                numbers = " | ".join(str(found.count(word)) for word in ("win", "tie", "loss"))
                yield f"| {task} | {score} | {method} | {numbers} |"


def _by_place(records: list[Job], score: str) -> dict[tuple[Any, ...], dict[str, dict[int, float]]]:
    """For each table and setting that we have a score of, the scores of every method by split."""
    groups: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for record in records:
        place = (record["table"], record.get("hidden", ""), record.get("how", ""))
        groups.setdefault(place, {}).setdefault(record["method"], {})[record["split"]] = record["scores"][score]
    return {place: methods for place, methods in groups.items() if OURS in methods}


def _lines(records: list[Job], score: str) -> Iterator[str]:
    counts: dict[str, list[str]] = {}
    for place, methods in _by_place(records, score).items():
        ours = methods.pop(OURS)
        cells = []
        for method, theirs in methods.items():
            word = verdict(ours, theirs, score)
            counts.setdefault(method, []).append(word)
            same = [theirs[split] for split in ours if split in theirs]
            cells.append(f"{method} {np.mean(same):.3f} {word}" if same else f"{method} –")
        error = np.std(list(ours.values())) / max(1, len(ours) - 1) ** 0.5
        yield f"{' '.join(map(str, place)).strip():<32} {OURS} {np.mean(list(ours.values())):.3f} ± {error:.3f}   " + (
            "   ".join(cells)
        )
    for method, words in counts.items():
        numbers = ", ".join(f"{words.count(word)} {word}" for word in ("win", "tie", "loss"))
        yield f"against {method}: {numbers}"


def verdict(ours: Mapping[int, float], theirs: Mapping[int, float], score: str) -> str:
    """Win, tie or loss; a tie if the difference is small, or smaller than twice its standard error."""
    both = sorted(set(ours) & set(theirs))
    if not both:
        return "–"
    sign = 1 if score in LARGER else -1
    ahead = np.array([sign * (ours[split] - theirs[split]) for split in both])
    error = ahead.std() / max(1, len(both) - 1) ** 0.5
    least = TIE if score == "nats" else TIE * abs(float(np.mean([theirs[split] for split in both])))
    mean = float(ahead.mean())
    return "tie" if abs(mean) < max(least, 2 * error if len(both) > 1 else 0.0) else "win" if mean > 0 else "loss"


if __name__ == "__main__":
    main()
