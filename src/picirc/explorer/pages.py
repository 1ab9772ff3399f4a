# SPDX-License-Identifier: Apache-2.0
"""What the pages about circuits, images and sequences ask, and how a model answers; tables have a file of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.circuit import Circuit, from_bayesnet
from picirc.errors import ArgumentError, ImpossibleEvidenceError, IntractableError
from picirc.exact import ExactGaussian
from picirc.explorer.server import Answer, Question, count_of, plain_values
from picirc.qpc.distribution import QPC
from picirc.qpc.marginals import LatentPosterior
from picirc.quadrature import Rule, clenshaw_curtis, gauss_hermite, gauss_legendre, midpoint, trapezoidal
from picirc.sequences.data import Sequences
from picirc.sequences.model import Forecast, SequenceModel
from picirc.structure.bayesnet import BayesNet
from picirc.structure.trees import LatentTree
from picirc.symbolic.units import Input, Integral, Product, Sum, Unit

# Circuits: the graph, and the quadrature with N points beside its error


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
    """The questions that can be asked about a Bayesian network or a circuit.

    Args:
        model: The network or the circuit.
        name: What the page is called.
    """

    def __init__(self, model: BayesNet | Circuit, name: str = "circuit") -> None:
        self.net = model if isinstance(model, BayesNet) else None
        self.circuit = from_bayesnet(model) if isinstance(model, BayesNet) else model
        self.name = name
        if len(self.circuit.units) > _MOST_UNITS:
            raise ArgumentError("model", f"a circuit of at most {_MOST_UNITS} units", f"{len(self.circuit.units)}")
        self.exact: ExactGaussian | None = None
        with suppress(IntractableError):
            self.exact = self.circuit.exact()

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by name."""
        return {"integrate": self.integrate, "curve": self.curve}

    def describe(self) -> Answer:
        """What the page needs to know once."""
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
        """The log-likelihood by quadrature with N points, its error and the cost."""
        x = self._point(request.get("x"))
        rule = self._rule(request, count_of(request, "n", 16, least=LEAST, most=MOST))
        qpc = self.circuit.integrate(rule, limit=_LARGEST)
        cost = self.circuit.cost(rule)
        truth = self._truth(x)
        value = float(qpc.log_prob(x))
        return {
            "log_prob": value if math.isfinite(value) else None,
            "estimate": _finite(float(qpc.error(x))),
            "exact": truth,
            "error": None if truth is None or not math.isfinite(value) else abs(value - truth),
            "cost": {"weights": cost.weights, "values": cost.values, "largest": cost.largest, "widest": cost.widest},
            "points": len(rule),
            "latents": _posteriors(qpc, x),
        }

    def curve(self, request: Answer) -> Answer:
        """The error against the number of points."""
        x = self._point(request.get("x"))
        truth = self._truth(x)
        found: Answer = {"points": [], "estimate": [], "error": []}
        for n in CURVE:
            qpc = self.circuit.integrate(self._rule(request, n), limit=_LARGEST)
            value = float(qpc.log_prob(x))
            found["points"].append(n)
            found["estimate"].append(_finite(float(qpc.error(x))))
            found["error"].append(None if truth is None else _finite(abs(value - truth)))
        return found

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

    def _truth(self, x: Tensor) -> float | None:
        return None if self.exact is None else float(self.exact.log_prob(x))


def _posteriors(qpc: Any, x: Tensor) -> list[Answer]:
    """The posterior of every latent whose points are fixed."""
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


# Images: one with gaps, and what a circuit makes of it


_MOST_SAMPLES = 16


class PictureQuestions:
    """The questions that can be asked about a circuit of images.

    Args:
        qpc: The circuit; its variables are the pixels, line by line.
        shape: Height and width; by default that of a square.
        tree: The latent tree, if the circuit has one: says which pixels a latent belongs to.
        examples: Images ``(n, pixels)`` to start from; NaN is missing.
        name: What the page is called.
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

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by name."""
        return {"complete": self.complete, "example": self.example}

    def describe(self) -> Answer:
        """What the page needs to know once."""
        height, width = self.shape
        edges = [] if self.tree is None else self._edges(self.tree)
        size = {"height": height, "width": width, "levels": self.levels}
        return {"kind": "image", "name": self.name, **size, "examples": len(self.examples), "edges": edges}

    def example(self, request: Answer) -> Answer:
        """One of the images."""
        if not len(self.examples):
            remedy = "start the explorer with --data digits, or pc.explore(model, data=images)"
            raise ArgumentError("example", "images to choose from", "none", remedy)
        number = count_of(request, "number", 0, least=0, most=len(self.examples) - 1)
        return {"pixels": _numbers(torch.from_numpy(self.examples[number]))}

    def complete(self, request: Answer) -> Answer:
        """The mean, the spread and draws of what is missing in an image, and the posterior of the latents."""
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
        """For each pixel where the posterior of its latent lies between 0 and 1, and how certain it is."""
        if self.tree is None:
            return None
        posteriors = self.qpc.latents(known[None])
        named = {latent: posteriors.get(f"z{latent}") for latent, pixels in enumerate(self.tree.variables) if pixels}
        own = {latent: posterior for latent, posterior in named.items() if posterior is not None}
        found = np.zeros((len(known), 2))
        if own:
            for latent, place in zip(own, _places(list(own.values())), strict=True):
                found[list(self.tree.variables[latent])] = place
        rounded: list[list[float]] = np.round(found, 4).tolist()
        return rounded

    def _edges(self, tree: LatentTree) -> list[list[int]]:
        """The edges between latents as pairs of pixels, for latents that have pixels."""
        return [
            [tree.variables[parent][0], tree.variables[latent][0]]
            for latent, parent in enumerate(tree.parents)
            if parent >= 0 and tree.variables[parent] and tree.variables[latent]
        ]


def _places(posteriors: Sequence[LatentPosterior]) -> npt.NDArray[np.float64]:
    """Where each posterior lies on its grid, from 0 to 1, and one minus its entropy as a part of the largest."""
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


# Sequences: the observations up to a step, and the forecast


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
        """Times as texts: dates, with the hour where it matters."""
        shown = self.model._shown(times) if times.dtype.kind == "f" else times
        if shown.dtype.kind != "M":
            return [f"{float(time):g}" for time in shown]
        days = bool((shown == shown.astype("datetime64[D]")).all())
        return [str(text) for text in np.datetime_as_string(shown, "D" if days else "m")]
