# SPDX-License-Identifier: Apache-2.0
"""The questions of the pages about circuits, images, sequences and tables. Evidence and answers are JSON values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.circuit import Circuit, from_bayesnet
from picirc.engine.evidence import Region
from picirc.errors import ArgumentError, ImpossibleEvidenceError, IntractableError
from picirc.exact import ExactGaussian
from picirc.explorer.server import Answer, Question, count_of, plain_values
from picirc.qpc.distribution import QPC
from picirc.qpc.marginals import LatentPosterior
from picirc.quadrature import Rule, clenshaw_curtis, gauss_hermite, gauss_legendre, midpoint, trapezoidal
from picirc.report.sections import in_units, limits_of, surprises
from picirc.sequences.data import Sequences
from picirc.sequences.model import Forecast, SequenceModel
from picirc.structure.bayesnet import BayesNet
from picirc.structure.information import mutual_information
from picirc.structure.trees import LatentTree, maximum_spanning_tree
from picirc.symbolic.units import Input, Integral, Product, Sum, Unit
from picirc.tables import Column, TableModel
from picirc.tables.answers import Conditional, strange_cells

# Circuits


RULES: Mapping[str, Callable[[int], Rule]] = {
    "trapezoidal": trapezoidal,
    "midpoint": midpoint,
    "Gauss–Legendre": gauss_legendre,
    "Gauss–Hermite": gauss_hermite,
    "Clenshaw–Curtis": clenshaw_curtis,
}
LEAST, MOST = 4, 128  # points
CURVE = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
_LARGEST = 2**24  # elements of one tensor
_MOST_UNITS = 400  # of a circuit that is drawn


class CircuitQuestions:
    """Questions about a Bayesian network or a circuit."""

    def __init__(self, model: BayesNet | Circuit, name: str = "circuit") -> None:
        self.net = model if isinstance(model, BayesNet) else None
        self.circuit = from_bayesnet(model) if isinstance(model, BayesNet) else model
        self.name = name
        if len(self.circuit.units) > _MOST_UNITS:
            raise ArgumentError("model", f"a circuit of at most {_MOST_UNITS} units", f"{len(self.circuit.units)}")
        self.exact: ExactGaussian | None = None
        with suppress(IntractableError):
            self.exact = self.circuit.exact()
        self.questions: dict[str, Question] = {"integrate": self.integrate, "curve": self.curve}

    def describe(self) -> Answer:
        """The circuit, its graph and its properties."""
        properties = self.circuit.properties
        names = ("smooth", "decomposable", "structured_decomposable", "tree_shaped")
        start = dict.fromkeys(self.circuit.variables, 0.0)
        if self.exact is not None:
            means = self.exact.mean.tolist()
            start = {name: round(mean, 3) for name, mean in zip(self.circuit.variables, means, strict=True)}
        return {
            "kind": "circuit",
            "name": self.name,
            "variables": list(self.circuit.variables),
            "start": start,
            "rules": list(RULES),
            "least": LEAST,
            "most": MOST,
            "exact": self.exact is not None,
            "net": None if self.net is None else _network(self.net),
            "units": _units(self.circuit),
            "properties": {name: properties.violations.get(name, "") for name in names},
        }

    def integrate(self, request: Answer) -> Answer:
        """The log-likelihood by quadrature with N points, its error, the cost, and the posteriors of the latents."""
        x = self._point(request.get("x"))
        rule = self._rule(request, count_of(request, "n", 16, least=LEAST, most=MOST))
        cost = self.circuit.cost(rule)
        qpc, found = self._integrate(rule, x)
        return found | {
            "cost": {"weights": cost.weights, "values": cost.values, "largest": cost.largest, "widest": cost.widest},
            "points": len(rule),
            "latents": _posteriors(qpc, x),
        }

    def curve(self, request: Answer) -> Answer:
        """The error against the number of points."""
        x = self._point(request.get("x"))
        found = [self._integrate(self._rule(request, n), x)[1] for n in CURVE]
        return {"points": CURVE} | {name: [each[name] for each in found] for name in ("estimate", "error")}

    def _integrate(self, rule: Rule, x: Tensor) -> tuple[QPC, Answer]:
        """The log-likelihood with its estimated error, and its true error where the exact value is known."""
        qpc = self.circuit.integrate(rule, limit=_LARGEST)
        value = float(qpc.log_prob(x))
        exact = None if self.exact is None else float(self.exact.log_prob(x))
        error = None if exact is None else _finite(abs(value - exact))
        return qpc, {
            "log_prob": _finite(value), "estimate": _finite(float(qpc.error(x))), "exact": exact, "error": error
        }  # fmt: skip

    def _rule(self, request: Answer, n: int) -> Rule:
        name = request.get("rule", "trapezoidal")
        if not isinstance(name, str) or name not in RULES:
            raise ArgumentError("rule", f"one of {', '.join(RULES)}", repr(name)[:80])
        return RULES[name](n)

    def _point(self, x: Any) -> Tensor:
        if not isinstance(x, dict) or set(x) - set(self.circuit.variables):
            raise ArgumentError("x", f"values of {', '.join(self.circuit.variables)}", repr(x)[:80])
        values = []
        for name in self.circuit.variables:
            value = x.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ArgumentError(name, "a number, or null where it is unknown", repr(value)[:80])
            values.append(math.nan if value is None else float(value))
        return torch.tensor([values], dtype=torch.float64)


def _posteriors(qpc: QPC, x: Tensor) -> list[Answer]:
    """The posterior of every latent with fixed points."""
    try:
        found = qpc.latents(x).values()
    except ImpossibleEvidenceError:
        return []
    return [
        {"name": z.name, "grid": z.grid.tolist(), "density": z.density[0].tolist(), "mean": float(z.mean[0])}
        for z in found
        if z.grid is not None and z.weights is not None and z.mean is not None
    ]


def _network(net: BayesNet) -> Answer:
    functions = dict(net.latents) | dict(net.variables)
    nodes = [{"name": name, "observed": name in net.variables} for name in functions]
    edges = [[parent, name] for name, function in functions.items() for parent in function.parents]
    return {"nodes": nodes, "edges": edges}


def _units(circuit: Circuit) -> Answer:
    """The units as a graph, the root first; edges point from a unit to its inputs."""
    units = tuple(reversed(circuit.units))
    number = {id(unit): place for place, unit in enumerate(units)}
    kinds: dict[type[Unit], str] = {Input: "input", Integral: "integral", Sum: "sum", Product: "product"}
    nodes = []
    for unit in units:
        free, scope = sorted(circuit.free(unit)), sorted(circuit.scope(unit))
        nodes.append({"name": circuit.names[unit], "kind": kinds[type(unit)], "free": free, "scope": scope})
    edges = [[number[id(unit)], number[id(child)]] for unit in units for child in unit.inputs]
    return {"nodes": nodes, "edges": edges}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# Images


_MOST_SAMPLES = 16


class PictureQuestions:
    """Questions about a circuit of images.

    Args:
        qpc: The circuit. Its variables are the pixels, line by line.
        shape: Height and width; by default the images are square.
        tree: The latent tree, if the circuit has one.
        examples: Images ``(n, pixels)`` to start from; NaN is missing.
        name: The title of the page.
    """

    def __init__(
        self,
        qpc: QPC,
        shape: tuple[int, int] | None = None,
        tree: LatentTree | None = None,
        examples: Any = None,
        name: str = "images",
    ) -> None:
        self.qpc, self.name = qpc, name
        pixels = len(qpc.variables)
        side = math.isqrt(pixels)
        self.shape = shape or (side, side)
        if math.prod(self.shape) != pixels:
            remedy = "give the height and width of the images as shape"
            raise ArgumentError("shape", f"a height and width with {pixels} pixels", self.shape, remedy)
        self.levels = _levels(qpc)
        self.tree = tree
        self.examples = np.zeros((0, pixels)) if examples is None else np.asarray(examples, np.float64)
        self.questions: dict[str, Question] = {"complete": self.complete, "example": self.example}

    def describe(self) -> Answer:
        """The size of the images, and the edges between latents as pairs of pixels."""
        parents = () if self.tree is None else self.tree.parents
        own = () if self.tree is None else self.tree.variables
        return {
            "kind": "image",
            "name": self.name,
            "height": self.shape[0],
            "width": self.shape[1],
            "levels": self.levels,
            "examples": len(self.examples),
            "edges": [[own[p][0], own[z][0]] for z, p in enumerate(parents) if p >= 0 and own[p] and own[z]],
        }

    def example(self, request: Answer) -> Answer:
        """One of the images."""
        if not len(self.examples):
            remedy = "start the explorer with --data digits, or pc.explore(model, data=images)"
            raise ArgumentError("example", "images to choose from", "none", remedy)
        number = count_of(request, "number", 0, least=0, most=len(self.examples) - 1)
        return {"pixels": _numbers(torch.from_numpy(self.examples[number]))}

    def complete(self, request: Answer) -> Answer:
        """The mean, the standard deviation and samples of the missing pixels, and the posterior of the latents."""
        known = self._image(request.get("pixels"))
        seed = count_of(request, "seed", 0, least=0, most=2**31)
        n = count_of(request, "samples", 6, most=_MOST_SAMPLES)
        source = torch.Generator(device=self.qpc.device).manual_seed(seed)
        marginals = self.qpc.marginals(given=known)
        log_prob = float(self.qpc.log_prob(known[None]))
        seen = int((~known.isnan()).sum())
        return {
            "log_prob": log_prob,
            "bits": -log_prob / seen / math.log(2) if seen else None,
            "missing": len(known) - seen,
            "mean": _numbers(marginals.mean),
            "spread": _numbers(marginals.variance.clamp(min=0).sqrt()),
            "samples": [_numbers(image) for image in self.qpc.sample(n, given=known, generator=source)],
            "latents": self._latents(known),
        }

    def _image(self, pixels: Any) -> Tensor:
        size = len(self.qpc.variables)
        if not isinstance(pixels, list) or len(pixels) != size:
            raise ArgumentError("pixels", f"a list of {size} numbers, null where unknown", type(pixels).__name__)
        if not all(p is None or (isinstance(p, int) and 0 <= p < self.levels) for p in pixels):
            raise ArgumentError("pixels", f"integers from 0 to {self.levels - 1}, or null", "others")
        values = [math.nan if p is None else float(p) for p in pixels]
        return torch.tensor(values, dtype=self.qpc.dtype, device=self.qpc.device)

    def _latents(self, known: Tensor) -> list[list[float]] | None:
        """For each pixel the position of the posterior of its latent, from 0 to 1, and its certainty."""
        if self.tree is None:
            return None
        posteriors = self.qpc.latents(known[None])
        own = [(posteriors.get(f"z{z}"), list(pixels)) for z, pixels in enumerate(self.tree.variables) if pixels]
        there = [(posterior, pixels) for posterior, pixels in own if posterior is not None]
        found = np.zeros((len(known), 2))
        if there:
            for place, (_, pixels) in zip(_places([posterior for posterior, _ in there]), there, strict=True):
                found[pixels] = place
        rounded: list[list[float]] = np.round(found, 4).tolist()
        return rounded


def _places(posteriors: Sequence[LatentPosterior]) -> npt.NDArray[np.float64]:
    """The mean position of each posterior on its grid, from 0 to 1, and one minus its normalised entropy."""
    chances = torch.stack([posterior.probabilities[0] for posterior in posteriors]).double().cpu()  # (latents, states)
    states = chances.shape[1]
    numbers = torch.arange(states, dtype=torch.float64)  # of states without values, or with vectors as values
    lines = [posterior.grid for posterior in posteriors]
    grid = torch.stack([numbers if line is None or line.ndim > 1 else line.double().cpu() for line in lines])
    low, high = grid.amin(1, keepdim=True), grid.amax(1, keepdim=True)
    span = torch.where(high > low, high - low, 1.0)
    middle = (chances * (grid - low) / span).sum(1)
    entropy = -torch.special.xlogy(chances, chances).sum(1) / math.log(max(2, states))
    return torch.stack((middle, 1 - entropy), 1).numpy()


def _levels(qpc: QPC) -> int:
    """The number of values of a pixel."""
    try:
        return len(qpc.marginals().probabilities(qpc.variables[0]))
    except ArgumentError:
        remedy = "the explorer shows tables, images of finitely many levels, Bayesian networks and circuits"
        raise ArgumentError("model", "pixels with finitely many values", repr(qpc.families[0]), remedy) from None


def _numbers(values: Tensor) -> list[float | None]:
    found: npt.NDArray[np.float64] = values.double().cpu().numpy()
    return [None if math.isnan(value) else round(value, 3) for value in found.tolist()]


# Sequences


_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_LENGTH = 60  # of a sequence drawn from the model
_MOST_STEPS = 200  # ahead
_MOST_ROWS = 2000  # of a sequence that is shown; these are its last rows


class SequenceQuestions:
    """Questions about a model of sequences; without data it shows a sequence drawn from the model."""

    def __init__(self, model: SequenceModel, data: Any = None, name: str = "sequences") -> None:
        self.model, self.name = model, name
        self.drawn = data is None
        self.sequences = model._read(model.sample(_LENGTH, seed=0) if data is None else data)
        self.questions: dict[str, Question] = {"series": self.series, "look": self.look}

    def describe(self) -> Answer:
        """The columns and the sequences."""
        columns = []
        for place, name in enumerate(self.model.columns.names):
            labels = self.model.columns.labels(place)
            columns.append({"name": name, "labels": plain_values(labels) if labels else None})
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
        values = {name: plain_values(column) for name, column in table.items()}
        return {"times": self._labels(times), "at": times.tolist(), "values": values}

    def look(self, request: Answer) -> Answer:
        """The filtered latent, the surprise of each row and the forecast, given the first rows of a sequence.

        The request has ``sequence``, the number ``until`` of known rows, the number of ``steps`` to forecast, and
        ``cells``: changed values by row and column, null where unknown.
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
            "times": self._labels(ahead.times),
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
        found = {name: plain_values(values)[:until] for name, values in table.items()}
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

    def _labels(self, times: npt.NDArray[Any]) -> list[str]:
        """Times as strings: numbers, dates, or dates with the time of day."""
        shown = self.model._shown(times) if times.dtype.kind == "f" else times
        if shown.dtype.kind != "M":
            return [f"{float(time):g}" for time in shown]
        days = bool((shown == shown.astype("datetime64[D]")).all())
        return [str(text) for text in np.datetime_as_string(shown, "D" if days else "m")]


# Tables


Array = npt.NDArray[np.float64]

_BINS = 48  # of a column of numbers; each is divided into two intervals
_TAILS = np.array([*np.arange(1, 13) * 0.03, 0.5, 0.8, 1.5, 4.0])  # points beyond the axis, relative to its length
_BARS = 60  # of a column of counts
_DRAWN = 2000  # rows drawn for the tree, the axes and the surprise of rows
_LISTED = 20  # surprising rows
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class Axis:
    """The points at which the distribution of a column is computed."""

    column: Column
    place: int  # the position of the column in the schema
    # The ends of intervals of numbers or the values of counts, in the units of the table; or the codes of categories.
    grid: Array
    edges: Array  # the codes of the ends of intervals, or of those around the values; the outer ones are infinite
    first: int  # the index of the point of the grid at which the axis begins
    last: int  # and ends
    step: int = 1  # the distance between points, for counts

    @property
    def kind(self) -> str:
        """``"category"``, ``"count"`` or ``"number"``."""
        return "category" if self.column.coded else "count" if self.column.family.discrete else "number"

    def has_density_at(self, code: float) -> bool:
        """Whether a value has a density rather than a probability."""
        return self.kind == "number" and code not in getattr(self.column.family, "atoms", ())

    def summary(self, masses: Array, spikes: Array, mean: float | None, known: Region | None) -> Answer:
        """The mean, the quantiles and the heights to draw.

        Args:
            masses: The probabilities of the intervals or values.
            spikes: The probabilities of the atoms of a column of numbers.
            mean: The expectation; None to compute it from the masses.
            known: The range or set to which the column is restricted.
        """
        if self.kind == "count":
            below = np.cumsum(masses)
            quantiles = [self.grid[min(int(np.searchsorted(below, q)), len(below) - 1)] for q in _QUANTILES]
            shown, middles = masses[self.first : self.last + 1], self.grid
        else:
            grid = _possible(self.column, self.grid, known)
            quantiles = np.interp(
                _QUANTILES, *_distribution(grid, masses, np.array(self.column.spikes), spikes)
            ).tolist()
            shown, middles = masses[self.first : self.last].reshape(-1, 2).sum(1), (grid[1:] + grid[:-1]) / 2
            # What is beyond the least and the largest possible value is at these values.
            shown[0] += masses[: self.first].sum() if grid[0] == grid[self.first] else 0.0
            shown[-1] += masses[self.last :].sum() if grid[-1] == grid[self.last] else 0.0
        if mean is None:
            mean = float(masses @ middles + spikes @ np.array(self.column.spikes))
        found = {"heights": shown.tolist(), "mean": mean, "quantiles": [float(q) for q in quantiles]}
        return found | ({"spikes": spikes.tolist()} if len(spikes) else {})


def _distribution(grid: Array, masses: Array, values: Array, spikes: Array) -> tuple[Array, Array]:
    """The distribution function at some points: probabilities in ascending order, and the values."""
    below = np.concatenate([[0.0], np.cumsum(masses)])
    smooth = np.interp(values, grid, below)
    jumps = smooth + np.cumsum(spikes)  # values are in ascending order
    reached = np.concatenate([below + (grid[:, None] >= values) @ spikes, jumps - spikes, jumps])
    at = np.concatenate([grid, values, values])
    order = np.lexsort((at, reached))
    return reached[order] + np.arange(len(order)) * 1e-15, at[order]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence on the columns."""

    row: Array  # the codes of known values, `(columns,)`; NaN is unknown
    regions: Mapping[int, Region]  # ranges and sets, by the position of the column

    @property
    def values(self) -> dict[int, float]:
        """The codes of known values, by the position of the column."""
        return {int(place): float(self.row[place]) for place in np.flatnonzero(~np.isnan(self.row))}

    def holds(self, rows: Array) -> npt.NDArray[np.bool_]:
        """Which encoded rows agree with the evidence."""
        fits = np.ones(len(rows), bool)
        for place, code in self.values.items():
            fits &= rows[:, place] == code
        for place, region in self.regions.items():
            fits &= region.holds(torch.from_numpy(rows[:, place])).numpy()
        return fits


class TableQuestions:
    """Questions about a model of a table; ``data`` is a table of any kind to compare it with."""

    def __init__(self, model: TableModel, data: Any = None, name: str = "table") -> None:
        self.model, self.name = model, name
        self.schema = model.schema
        self.rows: Array | None = None if data is None else model.schema.encode(data)
        self.axes = tuple(self._axis(place) for place in range(len(self.schema.columns)))
        self.questions: dict[str, Question] = {
            "answer": self.answer, "sample": self.sample, "row": self.row, "surprising": self.surprising
        }  # fmt: skip

    def describe(self) -> Answer:
        """The columns, and the tree of their dependencies."""
        return {
            "kind": "table",
            "name": self.name,
            "rows": None if self.rows is None else len(self.rows),
            "columns": [self._describe(axis) for axis in self.axes],
            "edges": self._tree,
        }

    def answer(self, request: Answer) -> Answer:
        """The distribution of every column given one or two sets of evidence.

        The request has ``evidence``, a list of mappings from names to ``{"is": value}``, ``{"from": a, "to": b}`` or
        ``{"in": [values]}``.
        """
        asked = request.get("evidence")
        if not isinstance(asked, list) or not 1 <= len(asked) <= 2:
            raise ArgumentError("evidence", "a list of one or two sets of evidence", type(asked).__name__)
        return {"answers": [self.given(evidence) for evidence in asked]}

    def given(self, asked: Any) -> Answer:
        """The distribution of every column given one set of evidence."""
        evidence = self.evidence(asked)
        with self._in_words(evidence):
            given = Conditional(self.model.qpc, torch.from_numpy(evidence.row), evidence.regions)
        known = evidence.values
        return {
            "cards": [None if axis.place in known else self._card(axis, given, evidence) for axis in self.axes],
            "log_evidence": given.log_evidence,
            "density": any(self.axes[place].has_density_at(code) for place, code in known.items()),
            "matching": None if self.rows is None else int(evidence.holds(self.rows).sum()),
        }

    def sample(self, request: Answer) -> Answer:
        """Rows drawn from the model given evidence."""
        n = count_of(request, "n", 10, most=1000)
        evidence = self.evidence(request.get("evidence", {}))
        seed = count_of(request, "seed", 0, least=0, most=2**31)
        qpc, source = self.model.qpc, torch.Generator().manual_seed(seed)
        regions = {qpc.variables[place]: region for place, region in evidence.regions.items()}
        with self._in_words(evidence):
            drawn = qpc.sample(n, given=torch.from_numpy(evidence.row), generator=source, regions=regions)
        columns = self._columns(drawn.numpy())
        rows = zip(*map(plain_values, columns.values()), strict=True)
        return {"columns": list(columns), "rows": list(map(list, rows))}

    def row(self, request: Answer) -> Answer:
        """A row of the data, with the surprise of each cell and its expected value given the others."""
        rows = self._data()
        number = count_of(request, "row", 0, least=0, most=len(rows) - 1)
        one = torch.from_numpy(rows[number : number + 1])
        (strange,) = strange_cells(self.model.qpc, one, self.schema.columns)
        found = []
        for cell in strange:
            column, expected = self.schema.columns[cell.column], cell.expected
            shown = column.categories[int(expected)] if column.coded else round(expected) if column.whole else expected
            found.append({"column": cell.column, "tail": cell.tail, "expected": shown})
        columns = self._columns(rows[number : number + 1])
        cells = [plain_values(values)[0] for values in columns.values()]
        return {"row": number, "cells": cells, "surprises": found}

    def surprising(self, request: Answer) -> Answer:
        """The most surprising rows of the data; the surprise is in nats beyond the expected one."""
        n = count_of(request, "n", _LISTED, most=200)
        order = np.argsort(-self._surprise, kind="stable")[:n]
        return {"rows": [{"row": int(row), "surprise": float(self._surprise[row])} for row in order]}

    def evidence(self, given: Any) -> Evidence:
        """Check and encode evidence."""
        if not isinstance(given, dict):
            raise ArgumentError("evidence", "a mapping from column names to evidence", type(given).__name__)
        row, regions = np.full(self.schema.width, np.nan), {}
        for name, known in given.items():
            axis = self.axes[self.schema.index(name)]
            match self._known(axis, known):
                case float(code):
                    row[axis.place] = code
                case Region() as region:
                    regions[axis.place] = region
        return Evidence(row, regions)

    def _known(self, axis: Axis, known: Any) -> float | Region:
        """The evidence on a column: the code of a value, or a range or set of codes."""
        column = axis.column
        match known:
            case {"is": value, **rest} if not rest:
                code: float = self._codes(axis, [value]).tolist()[0]
                return code
            case {"in": [*values], **rest} if values and not rest and axis.kind != "number":
                return Region(tuple((code, code) for code in sorted(set(self._codes(axis, values).tolist()))))
            case {"from": low, "to": high, **rest} if not rest and axis.kind != "category":
                bounds = (-math.inf if low is None else low, math.inf if high is None else high)
                if not all(isinstance(bound, int | float) for bound in bounds) or not bounds[0] <= bounds[1]:
                    raise ArgumentError(column.name, "two numbers, the smaller one first, or null", f"{low} and {high}")
                return column.region_between(float(bounds[0]), float(bounds[1]))
        ways = {
            "category": '{"is": value} or {"in": [values]}',
            "count": '{"is": value}, {"in": [values]} or {"from": a, "to": b}',
            "number": '{"is": value} or {"from": a, "to": b}',
        }[axis.kind]
        raise ArgumentError(column.name, ways, repr(known)[:80])

    def _codes(self, axis: Axis, values: Sequence[Any]) -> Array:
        if axis.column.kind == "empty":
            raise ArgumentError(axis.column.name, "a column with values", "one that was empty")
        if any(value is None or isinstance(value, list | dict) for value in values):
            raise ArgumentError(axis.column.name, "values of the column", repr(values)[:80])
        if axis.kind == "category" and axis.column.dtype != "text":
            values = [float(value) if not isinstance(value, str) else value for value in values]
        return self._encode(axis.column, np.array(values, dtype=object) if isinstance(values[0], str) else values)

    def _card(self, axis: Axis, given: Conditional, evidence: Evidence) -> Answer:
        """The distribution of a column."""
        if axis.kind == "category":
            return {"heights": given.probabilities(axis.place).tolist()}
        masses, spikes = given.masses(axis.place, axis.edges)
        return axis.summary(masses, spikes, given.mean(axis.column, axis.place), evidence.regions.get(axis.place))

    @contextmanager
    def _in_words(self, evidence: Evidence) -> Iterator[None]:
        """Name the columns in the error for evidence with probability zero."""
        try:
            yield
        except ImpossibleEvidenceError:
            names = ", ".join(self.schema.names[place] for place in sorted({*evidence.values, *evidence.regions}))
            remedy = "remove some of it, or widen its ranges"
            raise ImpossibleEvidenceError(f"evidence: these values have probability zero: {names}; {remedy}.") from None

    @cached_property
    def _drawn(self) -> Array:
        return self.model.qpc.sample(_DRAWN, generator=torch.Generator().manual_seed(0)).numpy()

    @cached_property
    def _tree(self) -> list[Answer]:
        """The maximum spanning tree of the mutual information between columns, in rows drawn from the model."""
        if len(self.axes) == 1:
            return []
        kinds = ["categorical" if axis.column.coded else "ordinal" for axis in self.axes]
        information = mutual_information(self._drawn[:, : len(kinds)], kinds)
        edges = maximum_spanning_tree(information)
        return [{"ends": [a, b], "nats": float(information[a, b])} for a, b in edges]

    @cached_property
    def _surprise(self) -> Array:
        rows = self._data()
        density = self.model.log_density_of_encoded
        return surprises(density, rows, density(rows), self._drawn)[0]

    def _data(self) -> Array:
        if self.rows is None:
            remedy = "start the explorer with --data table.csv, or pc.explore(model, data=table)"
            raise ArgumentError("row", "a table to take rows from", "none", remedy)
        return self.rows

    def _columns(self, encoded: Array) -> dict[str, Array]:
        """Decoded columns; dates in days since 1970."""
        dated = {c.name: c.numbers(encoded[:, place]) for place, c in enumerate(self.schema.columns) if c.dated}
        return self.schema.decoded(encoded) | dated

    def _axis(self, place: int) -> Axis:
        column = self.schema.columns[place]
        if column.coded:
            codes = np.arange(max(1, len(column.categories)), dtype=np.float64)
            return Axis(column, place, codes, codes, 0, len(codes) - 1)
        values = self._observed(place)
        low, high = limits_of(values if len(values) else in_units(column, self._drawn[:, place]), 0.04)
        if column.family.discrete:
            step = max(1, math.ceil((high - low + 1) / _BARS))
            first, far = math.floor(low), math.ceil(high + (high - low) + 5)
            grid = np.arange(first % step, far + 1, step, dtype=np.float64)
            start = int(np.searchsorted(grid, first))
            edges = np.append(grid - 1, math.inf)
            edges[0] = -math.inf
            return Axis(column, place, grid, edges, start, start + int((high - first) // step), step)
        room = (high - low) * _TAILS
        grid = np.concatenate([(low - room)[::-1], np.linspace(low, high, 2 * _BINS + 1), high + room])
        edges = np.maximum.accumulate(self._encode(column, _possible(column, grid)))
        edges[0], edges[-1] = -math.inf, math.inf
        return Axis(column, place, grid, edges, len(_TAILS), len(_TAILS) + 2 * _BINS)

    def _observed(self, place: int) -> Array:
        """The observed values of a column of the data, in the units of the table."""
        values = np.empty(0) if self.rows is None else in_units(self.schema.columns[place], self.rows[:, place])
        found: Array = values[np.isfinite(values)]
        return found

    def _encode(self, column: Column, values: Any) -> Array:
        if column.dated:  # the page counts in days
            return column.nearest(np.asarray(values, np.float64))
        return self.schema.encode({column.name: values}, absent=self.schema.names)[:, self.schema.index(column.name)]

    def _describe(self, axis: Axis) -> Answer:
        column = axis.column
        found: Answer = {"name": column.name, "kind": axis.kind, "empty": column.kind == "empty"}
        if axis.kind == "category":
            found["labels"] = plain_values(np.array(column.categories, dtype=object))
        else:
            found["low"], found["high"] = float(axis.grid[axis.first]), float(axis.grid[axis.last])
            found["whole"] = axis.kind == "count" or column.whole
            found["step"] = axis.step
            found["spikes"] = list(column.spikes)
        if self.rows is not None:
            found["data"], found["single"] = self._histogram(axis)
        return found

    def _histogram(self, axis: Axis) -> tuple[list[float], list[float]]:
        """The fraction of the data in each bar, and at each atom."""
        values = self._observed(axis.place)
        single = np.array([np.sum(values == spike) for spike in axis.column.spikes])
        shown = axis.grid[axis.first : axis.last + 1]
        edges = shown[::2] if axis.kind == "number" else np.append(shown, shown[-1] + axis.step) - 0.5
        bars = np.histogram(values[~np.isin(values, axis.column.spikes)], edges)[0]
        return tuple((counts / max(1, len(values))).tolist() for counts in (bars, single))


def _possible(column: Column, values: Array, known: Region | None = None) -> Array:
    """Numbers clipped to the values that a column can have, or to those of a range."""
    ends = np.array((-math.inf, math.inf) if known is None else known.intervals[0])
    found: Array = np.clip(values, *column.decode(ends, exact=True))
    return found
