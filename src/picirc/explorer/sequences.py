# SPDX-License-Identifier: Apache-2.0
"""What the page about sequences asks: what is known up to a step, and what the model makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from picirc.errors import ArgumentError
from picirc.explorer.server import Answer, Question, count_of
from picirc.sequences.data import Sequences
from picirc.sequences.model import Forecast, SequenceModel

_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_LENGTH = 60  # of a sequence that is drawn
_MOST_STEPS = 200  # ahead
_MOST_ROWS = 2000  # of a sequence that is shown, its last ones


class SequenceQuestions:
    """The questions that can be asked about a model of sequences.

    Args:
        model: The model.
        data: The sequences to begin with, as every query takes them; None for one that is drawn.
        name: What the page is called.
    """

    def __init__(self, model: SequenceModel, data: Any = None, name: str = "sequences") -> None:
        self.model, self.name = model, name
        self.drawn = data is None
        self.sequences = model._read(model.sample(_LENGTH, seed=0) if data is None else data)

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by name."""
        return {"series": self.series, "look": self.look}

    def describe(self) -> Answer:
        """What the page needs to know once."""
        columns = []
        for place, name in enumerate(self.model.columns.names):
            labels = self.model.columns.labels(place)
            columns.append({"name": name, "labels": [_plain(label) for label in labels] if labels else None})
        keys = self.sequences.keys or range(len(self.sequences.tables))
        return {
            "kind": "sequence",
            "name": self.name,
            "columns": columns,
            "sequences": [str(key) for key in keys],
            "drawn": self.drawn,
            "latents": int(self.model.chain.nodes.shape[1]),
            "most": _MOST_STEPS,
        }

    def series(self, request: Answer) -> Answer:
        """The rows of one sequence."""
        table, times = self._rows(self._number(request))
        return {"times": self._told(times), "at": times.tolist(), "values": {n: _values(v) for n, v in table.items()}}

    def look(self, request: Answer) -> Answer:
        """The filtered latent, the surprise of each row and the forecast, given the first rows of a sequence.

        The request has ``sequence``, the number ``until`` of rows that are known, the number of ``steps`` to forecast,
        and ``cells``: for some rows, by number, the values of some columns, null where unknown.
        """
        number = self._number(request)
        times = self._rows(number)[1]
        until = count_of(request, "until", len(times), most=len(times))
        known = self._known(number, until, request.get("cells", {}))
        steps = count_of(request, "steps", 12, most=_MOST_STEPS)
        state, surprise = self.model.filter(known), self.model.surprise(known)
        ahead: Forecast = self.model.forecast(known, steps, _LEVELS)
        return {
            "log_prob": -float(surprise.sum()),
            "surprise": surprise.tolist(),
            "filter": {"mean": state.mean.T.tolist(), "std": state.std.T.tolist()},
            "times": self._told(ahead.times),
            "at": (times[until - 1] + self.model.unit * np.arange(1, steps + 1)).tolist(),
            "numbers": {
                n: {"mean": m.tolist(), "quantiles": ahead.quantiles[n].T.tolist()} for n, m in ahead.mean.items()
            },
            "categories": {name: masses.T.tolist() for name, masses in ahead.probabilities.items()},
        }

    def _number(self, request: Answer) -> int:
        return count_of(request, "sequence", 0, least=0, most=len(self.sequences.tables) - 1)

    def _rows(self, number: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.float64]]:
        """The last rows of a sequence in the order of the model's columns, and their times."""
        names, own = self.model.columns.names, self.sequences.tables[number]
        named = own if set(own) & set(names) else dict(zip(names, own.values(), strict=False))  # an array has no names
        times = self.model._times(self.sequences, number)[-_MOST_ROWS:]
        gone = np.full(len(times), None, dtype=object)
        return {name: np.asarray(named[name])[-_MOST_ROWS:] if name in named else gone for name in names}, times

    def _known(self, number: int, until: int, cells: Any) -> Sequences:
        """The first rows of a sequence with some cells changed."""
        table, times = self._rows(number)
        found = {name: _values(values)[:until] for name, values in table.items()}
        if not isinstance(cells, dict) or not all(isinstance(row, dict) for row in cells.values()):
            raise ArgumentError("cells", "an object of rows, each an object of cells", type(cells).__name__)
        for row, values in cells.items():
            place = count_of({"row": int(row) if row.isdecimal() else row}, "row", 0, least=0, most=len(times) - 1)
            for name, value in values.items():
                if name not in found:
                    raise ArgumentError("cells", f"names among {', '.join(found)}", repr(name)[:80])
                if place < until:
                    found[name][place] = self._checked(name, value)
        arrays = {name: np.array(values, dtype=object) for name, values in found.items()}
        for place, name in enumerate(self.model.columns.names):
            if not self.model.columns.labels(place):
                arrays[name] = arrays[name].astype(np.float64)
        cut = None if self.sequences.times is None else (times[:until],)
        rows = (np.arange(until),)
        return replace(self.sequences, tables=(arrays,), times=cut, keys=None, rows=rows, alone=True)

    def _checked(self, name: str, value: Any) -> Any:
        labels = self.model.columns.labels(self.model.columns.names.index(name))
        if value is None or (labels and value in labels):
            return value
        if not labels and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return value
        raise ArgumentError(name, f"one of {', '.join(map(str, labels))}" if labels else "a number", repr(value)[:80])

    def _told(self, times: npt.NDArray[Any]) -> list[str]:
        """Times as texts: dates, with the hour where it matters."""
        shown = self.model._shown(times) if times.dtype.kind == "f" else times
        if shown.dtype.kind != "M":
            return [f"{float(time):g}" for time in shown]
        days = bool((shown == shown.astype("datetime64[D]")).all())
        return [str(text) for text in np.datetime_as_string(shown, "D" if days else "m")]


def _plain(value: Any) -> Any:
    """A value as JSON has it; a missing one is null."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _values(values: npt.NDArray[Any]) -> list[Any]:
    return [_plain(value) for value in values.tolist()]
