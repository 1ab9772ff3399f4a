# SPDX-License-Identifier: Apache-2.0
"""Models of public tables against the usual methods: likelihood, imputation, classification, synthesis, anomalies.

``make bench-tables`` runs all jobs with default settings, the smallest tables first, and appends a line for each to
``benchmarks/results/tables.jsonl``; a job that has its line is not run again. Then it prints means with standard errors
over the splits, and wins, ties and losses.

A model of a table is fitted once for each part into training and test rows: the likelihood of test rows and the search
for swapped cells use the same one, as do all features and masked ones of a classifier. The seconds of a job include
the fit only if it is the first that uses it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import IsolationForest
from sklearn.metrics import log_loss, roc_auc_score

import picirc as pc
from measure import revision
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
    if options.counts or options.summary:
        print(*(counts if options.counts else summary)(_records(options.output)), sep="\n")
        return
    jobs = [job for job in _jobs(options) if job["task"] in options.tasks and _wanted(job, options.methods)]
    known = {_key(record) for record in _records(options.output)}
    made = revision()
    until = time.monotonic() + 60 * options.minutes if options.minutes else np.inf
    for job in jobs:
        if _key(job) not in known and time.monotonic() < until:
            record = job | _run(job) | {"date": datetime.now(UTC).isoformat(timespec="seconds"), "revision": made}
            with options.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
            print(json.dumps(record, ensure_ascii=False), flush=True)
    print(*summary(_records(options.output)), sep="\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tables", nargs="+", default=names(), choices=names())
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--methods", nargs="+", default=["ours", "others"], help="ours, others, or names such as TVAE")
    parser.add_argument("--splits", type=int, default=3, help="random parts into training and test rows")
    parser.add_argument("--minutes", type=float, help="start no job after this time; the next run goes on")
    parser.add_argument("--summary", action="store_true", help="run nothing; print the scores of all tables")
    parser.add_argument("--counts", action="store_true", help="run nothing; print means, wins, ties and losses")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the file of finished jobs")
    return parser.parse_args()


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    for table in options.tables:
        for split in range(options.splits):
            for task, methods in ((task, TASKS[task]) for task in TASKS if is_for(table, task)):
                for setting in SETTINGS.get(task, ({},)):
                    for method in (OURS, *methods):
                        yield {"task": task, "table": table, "split": split, **setting, "method": method}


def _wanted(job: Job, methods: Sequence[str]) -> bool:
    return job["method"] in methods or ("ours" if job["method"] == OURS else "others") in methods


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


def _spread(job: Job) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Complete training and test rows, whose quantities are spread over their steps."""
    whole = dequantised(load(job["table"]), np.random.default_rng([job["split"], 1]))
    train, test = _split(job, whole)
    for column in categories(train):  # what never occurred has no probability in some methods
        test = test[test[column].isin(train[column].unique())]
    return train, test.reset_index(drop=True)


@lru_cache(1)
def _model(table: str, split: int) -> pc.TableModel:
    return pc.fit_table(_spread({"table": table, "split": split})[0])


def likelihood(job: Job) -> Scores:
    """The mean log-density of held-out rows."""
    train, test = _spread(job)
    if job["method"] == OURS:
        return {"nats": float(_model(job["table"], job["split"]).log_density(test).mean())}
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


def synthesis(job: Job) -> Scores:
    """Shape and Trend of sdmetrics; how well a judge tells rows apart, and learns from them; minutes and parameters."""
    from sdmetrics.reports.single_table import QualityReport

    train, test = _parted(job, load(job["table"]).dropna())  # in their own units: years stay whole numbers
    started = time.perf_counter()
    if job["method"] == OURS:
        model = pc.fit_table(train)
        rows, parameters = model.sample(len(train), seed=0), sum(p.numel() for p in model.pic.parameters())
    else:
        rows, parameters = SYNTHESISERS[job["method"]](train, len(train))
    found: Scores = {"minutes": (time.perf_counter() - started) / 60, "parameters": parameters}
    rows = rows[list(train)]
    kinds = {column: {"sdtype": "numerical" if column in reals(train) else "categorical"} for column in train}
    report = QualityReport()
    report.real_correlation_threshold = report.real_association_threshold = 0  # all pairs count, as papers have it
    report.generate(train, rows, {"columns": kinds}, verbose=False)
    found |= dict(zip(("shape", "trend"), report.get_properties()["Score"].tolist(), strict=True))
    found["trend, same bins"] = _trend(train, rows)
    found |= _detection(train, rows, {"columns": kinds})
    name = label(job["table"])
    judge = CLASSIFIERS["boosting"]().fit(rows.drop(columns=name), rows[name].astype(str))
    chances = judge.predict_proba(test.drop(columns=name))[:, 1]
    return found | {"AUC learned": float(roc_auc_score(test[name] == judge.classes_[1], chances))}


def _trend(real: pd.DataFrame, drawn: pd.DataFrame) -> float:
    """Trend with the bins of the real rows for both tables.

    The report of sdmetrics cuts each table into ten parts of its own range, so that one extreme value shifts all bins.
    """
    from sdmetrics.column_pairs import ContingencySimilarity, CorrelationSimilarity

    scores = []
    for pair in map(list, itertools.combinations(real, 2)):
        numbers = [column for column in pair if column in reals(real)]
        if len(numbers) == 2:
            scores.append(CorrelationSimilarity.compute(real[pair], drawn[pair]))
        else:
            parts = (real[pair].copy(), drawn[pair].copy())  # which the metric changes
            scores.append(ContingencySimilarity.compute(*parts, continuous_column_names=numbers or None))
    return float(np.mean(scores))


def _detection(real: pd.DataFrame, drawn: pd.DataFrame, columns: dict[str, Any]) -> Scores:
    """1 − 2 max(0, AUC − ½) of judges that tell real rows from others, in three parts, as sdmetrics has it."""
    from sdmetrics.single_table import LogisticDetection
    from sdmetrics.single_table.detection.sklearn import ScikitLearnClassifierDetectionMetric
    from xgboost import XGBClassifier

    class Boosting(ScikitLearnClassifierDetectionMetric):
        _get_classifier = staticmethod(lambda: XGBClassifier(n_jobs=1))

    np.random.seed(0)  # noqa: NPY002, which the package draws from
    judges = {"C2ST": Boosting, "C2ST logistic": LogisticDetection}
    return {name: float(judge.compute(real, drawn, columns)) for name, judge in judges.items()}


def anomalies(job: Job) -> Scores:
    """The area under the curve for test rows with one cell from another row."""
    train, test = _spread(job)
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
LARGER = ("nats", "shape", "trend", "trend, same bins", "C2ST", "C2ST logistic", "AUC learned", "area")  # is better
JUDGED = (*LARGER, "error", "wrong", "loss", "error masked", "loss masked", "calibration", "calibration masked")
SHOWN = (*JUDGED, "coverage", "minutes", "parameters")
Place = tuple[Any, ...]  # a table and a setting
Places = dict[Place, dict[str, dict[int, float]]]  # scores by method and split


def summary(records: list[Job]) -> Iterator[str]:
    """For each score a table in Markdown: means with standard errors over the splits, and verdicts."""
    for task, score, places in _scored(records):
        rivals = list(dict.fromkeys(method for methods in places.values() for method in methods if method != OURS))
        yield f"\n**{task}: {score}**{_better(score)}\n"
        yield "| | " + " | ".join((OURS, *rivals)) + " |"
        yield "|---" * (len(rivals) + 2) + "|"
        for place, methods in places.items():
            ours = methods[OURS]
            cells = [_mean(ours)]
            for rival in rivals:
                theirs = {split: value for split, value in methods.get(rival, {}).items() if split in ours}
                word = f" {verdict(ours, theirs, score)}" if score in JUDGED and theirs else ""
                cells.append(_mean(theirs) + word)
            yield f"| {' '.join(map(str, place)).strip()} | " + " | ".join(cells) + " |"


def counts(records: list[Job]) -> Iterator[str]:
    """A table in Markdown: for each score and rival the means over all tables, and how many of them are won."""
    yield f"| | score | rival | {OURS} | rival's | won | tied | lost |"
    yield "|---" * 8 + "|"
    for task, score, places in _scored(records):
        for rival in dict.fromkeys(method for methods in places.values() for method in methods if method != OURS):
            pairs = [(methods[OURS], methods[rival]) for methods in places.values() if rival in methods]
            pairs = [(ours, theirs) for ours, theirs in pairs if set(ours) & set(theirs)]
            if not pairs or score not in JUDGED:
                continue
            words = [verdict(ours, theirs, score) for ours, theirs in pairs]
            both = [sorted(set(ours) & set(theirs)) for ours, theirs in pairs]
            means = (
                np.mean(
                    [np.mean([pair[side][split] for split in splits]) for pair, splits in zip(pairs, both, strict=True)]
                )
                for side in (0, 1)
            )
            numbers = " | ".join(str(words.count(word)) for word in ("win", "tie", "loss"))
            yield f"| {task} | {score} | {rival} | {' | '.join(f'{mean:.3f}' for mean in means)} | {numbers} |"


def _scored(records: list[Job]) -> Iterator[tuple[str, str, Places]]:
    """For each task and score the tables and settings that we have a score of."""
    for task in TASKS:
        own = [record for record in records if record["task"] == task and "failed" not in record["scores"]]
        for score in SHOWN:
            found: Places = {}
            for record in own:
                if score in record["scores"]:
                    place = (record["table"], record.get("hidden", ""), record.get("how", ""))
                    methods = found.setdefault(place, {}).setdefault(record["method"], {})
                    methods[record["split"]] = record["scores"][score]
            if found := {place: methods for place, methods in found.items() if OURS in methods}:
                yield task, score, found


def _better(score: str) -> str:
    return "" if score not in JUDGED else ", larger is better" if score in LARGER else ", smaller is better"


def _mean(values: Mapping[int, float]) -> str:
    """The mean over the splits, and its standard error if there are several."""
    if not values:
        return "–"
    every = np.array(list(values.values()))
    error = f" ± {every.std() / (len(every) - 1) ** 0.5:.3f}" if len(every) > 1 else ""
    return (f"{every.mean():,.0f}" if every.mean() > 1000 else f"{every.mean():.3f}") + error


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
