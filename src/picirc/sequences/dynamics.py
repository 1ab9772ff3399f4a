# SPDX-License-Identifier: Apache-2.0
"""The functions of a chain: known ones, from a Bayesian network and a transition for each latent, or neural nets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from scipy.linalg import solve_discrete_lyapunov
from torch import Tensor, nn

from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.exact import Conditional, NetworkGaussian
from picirc.functions import Density, FunctionFamily, LinearGaussian, Parametric
from picirc.inputs import Family
from picirc.io.describe import only, take
from picirc.io.files import check_tensors, file_of, pack, read_description, read_file, refusing, write
from picirc.quadrature import Rule, trapezoidal
from picirc.sequences.chain import Chain, normalised, repeated
from picirc.structure.bayesnet import BayesNet
from picirc.tables import Schema

GAP = "dt"  # the parent that stands for the time since the step before
DEFAULT_RULE = trapezoidal(257)
_SIGMAS = 8.0
_MOST_STATES = 4096
_LEAST_MASS = 0.99


class StateSpace:
    """A homogeneous chain of known functions, which can be evaluated on any grid.

    Args:
        net: The first step: its latents with their densities, and the observed variables given the latents.
        then: For each latent its density given latents one step before, and given ``"dt"`` if it depends on the time
            between the steps.
        on: The interval over which each latent is integrated; by default the domain of a ``pc.Density``, or ±8
            standard deviations of the stationary distribution of a linear-Gaussian chain.
    """

    def __init__(self, net: BayesNet, then: Mapping[str, Any], on: Mapping[str, tuple[float, float]] | None) -> None:
        net.check()
        self.names = tuple(net.latents)
        self.net, self.then = net, dict(then)
        self._check()
        self.timed = any(GAP in function.parents for function in self.then.values())
        self.domains = _domains(net, self.then, dict(on or {}))

    def chain(self, rule: Rule, widen: float = 1.0) -> Chain:
        """The chain on the product of one rule for each latent; ``widen`` multiplies the lengths of the intervals."""
        grids = []
        for low, high in (self.domains[z] for z in self.names):
            middle, half = (low + high) / 2, (high - low) / 2 * widen
            grids.append(rule.on(middle - half, middle + half))
        if len(rule) ** len(self.names) > _MOST_STATES:
            size = f"{len(rule)} points for each of {len(self.names)} latents"
            raise ArgumentError("rule", f"at most {_MOST_STATES:,} states", size, "take fewer points")
        points = np.stack([p.ravel() for p in np.meshgrid(*(g.points for g in grids), indexing="ij")], 1)
        weights = np.prod([w.ravel() for w in np.meshgrid(*(g.weights for g in grids), indexing="ij")], 0)
        nodes, log_weights = torch.from_numpy(points), torch.from_numpy(np.log(weights))
        values = {z: nodes[:, i] for i, z in enumerate(self.names)}
        start = log_weights.clone()
        for z, function in self.net.latents.items():
            start = start + function.log_density(values[z], *(values[p] for p in function.parents))  # type: ignore[attr-defined]

        def table(gap: Tensor) -> Tensor:
            given = {z: v.unsqueeze(1) for z, v in values.items()} | {GAP: gap.double()}
            logs = log_weights
            for z, function in self.then.items():
                logs = logs + function.log_density(values[z], *(given[p] for p in function.parents))
            return _checked(logs.expand(len(nodes), -1), rule)

        single = None if self.timed else table(torch.ones(()))

        def transition(gaps: Tensor) -> Tensor:
            return torch.stack([table(gap) for gap in gaps]) if single is None else repeated(single, gaps)

        inputs = []
        for function in self.net.variables.values():
            family, params = _distribution(function, [values[p] for p in function.parents], torch.zeros_like(start))
            inputs.append((family, params.unsqueeze(0)))
        return Chain(nodes, start.softmax(0), transition, tuple(inputs))

    def _check(self) -> None:
        if set(self.then) != set(self.names):
            expected = f"a density for each latent of the network ({', '.join(self.names) or 'none'})"
            raise ArgumentError("then", expected, ", ".join(map(str, self.then)) or "nothing")
        for z, function in self.then.items():
            if not callable(getattr(function, "log_density", None)):
                raise ArgumentError(f"then[{z!r}]", "pc.LinearGaussian or pc.Density", function)
            for parent in function.parents:
                if parent not in (*self.names, GAP):
                    expected = f"parents among the latents of the step before and {GAP!r}"
                    raise ArgumentError(f"then[{z!r}]", expected, repr(parent))


def _checked(logs: Tensor, rule: Rule) -> Tensor:
    """Transition probabilities: rows divided by their mass, which must be near 1 in the middle of the grid."""
    middle = float(logs[len(logs) // 2].logsumexp(0).exp())
    if not _LEAST_MASS < middle < 2 - _LEAST_MASS:
        remedy = "take more points, or a shorter interval on="
        got = f"{len(rule)} points, on which a transition has the mass {middle:.3g}"
        raise ArgumentError("rule", "points that are closer together than the width of a step", got, remedy)
    return logs.softmax(1)


def _domains(
    net: BayesNet, then: Mapping[str, Any], on: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    latents = tuple(net.latents)
    if unknown := [z for z in on if z not in latents]:
        raise ArgumentError("on", f"intervals of {', '.join(latents)}", repr(unknown[0]))
    found = {}
    for z, (low, high) in on.items():
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ArgumentError(f"on[{z!r}]", "(low, high) with low < high", (low, high))
        found[z] = (float(low), float(high))
    for z in latents:
        domain = getattr(then[z], "domain", None)
        if z not in found and domain is not None and all(map(math.isfinite, domain)):
            found[z] = domain
    if len(found) < len(latents):
        found = _stationary(net, then) | found
    return {z: found[z] for z in latents}


def _stationary(net: BayesNet, then: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """±8 standard deviations of a stationary linear-Gaussian chain, and of its first step."""
    latents = list(net.latents)
    remedy = "give the interval of each latent, as in on={" + repr(latents[0]) + ": (-5, 5)}"
    functions = [*then.values(), *net.latents.values()]
    if not all(isinstance(f, LinearGaussian) and GAP not in f.parents for f in functions):
        raise ArgumentError("on", "an interval for each latent that is not linear-Gaussian", "none", remedy)
    a = np.array([[then[z].weights.get(p, 0.0) for p in latents] for z in latents])
    if np.abs(np.linalg.eigvals(a)).max() >= 1 - 1e-9:
        raise ArgumentError("on", "an interval for each latent of a chain that is not stationary", "none", remedy)
    noise = np.diag([then[z].std ** 2 for z in latents])
    mean = np.linalg.solve(np.eye(len(a)) - a, [then[z].bias for z in latents])
    std = np.sqrt(np.diag(solve_discrete_lyapunov(a, noise)))
    first: dict[str, Any] = {z: net.latents[z] for z in reversed(net.children_first)}
    nodes = {z: Conditional(z, f.weights, f.bias, f.std) for z, f in first.items()}
    start = NetworkGaussian(latents, nodes, ())
    first_mean, first_std = start.mean.numpy(), start.covariance.diagonal().sqrt().numpy()
    low = np.minimum(mean - _SIGMAS * std, first_mean - _SIGMAS * first_std)
    high = np.maximum(mean + _SIGMAS * std, first_mean + _SIGMAS * first_std)
    return {z: (float(low[i]), float(high[i])) for i, z in enumerate(latents)}


def _distribution(function: object, points: Sequence[Tensor], blank: Tensor) -> tuple[Family, Tensor]:
    """The family of an observed variable and its parameters ``(N, P)`` at the points of its parents."""
    match function:
        case Parametric():
            return function.family, function.parameters(*points).expand(len(blank), -1).to(blank.dtype)
        case Density():
            return FunctionFamily(function, (0,) * len(points)), torch.stack(list(points) or [blank], -1)
    remedy = "each observed variable of a chain has one density given latents of the same step"
    raise ArgumentError("function", "pc.LinearGaussian, pc.Conditional or pc.Density", function, remedy)


# Neural functions

_RIDGE = 1e-3
_KERNEL = 0.35  # the width of the kernel that initialises the emissions, in units of the latent


def normal_points(n: int, dims: int, shift: Tensor | None = None) -> Tensor:
    """Points ``(n, dims)`` of equal weight under N(0, I): normal quantiles of a lattice, moved by a shift.

    In one dimension these are the midpoints of n cells of equal probability. In several dimensions, coordinate j of
    point i is the fractional part of i·α_j, with α_j the powers of the generalised golden ratio, whose multiples are
    spread evenly.
    """
    if dims == 1:
        u = torch.arange(n, dtype=torch.float64).unsqueeze(1) / n
    else:
        ratio = 2.0
        for _ in range(64):
            ratio = (1 + ratio) ** (1 / (dims + 1))  # the root of r^(d+1) = r + 1
        steps = ratio ** -torch.arange(1, dims + 1, dtype=torch.float64)
        u = torch.arange(n, dtype=torch.float64).unsqueeze(1) * steps
    moved = shift.double() if shift is not None else torch.full((dims,), 0.5, dtype=torch.float64)
    u = (u + (moved / n if dims == 1 else moved)) % 1.0
    found: Tensor = torch.special.ndtri(u.clamp(0.25 / n, 1 - 0.25 / n))
    return found


class _Features(nn.Module):
    """``[1, z, tanh(W z + b)]``, which includes the affine functions of z."""

    def __init__(self, dims: int, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, dims, generator=generator) * 1.5 / math.sqrt(dims))
        self.bias = nn.Parameter(torch.randn(width, generator=generator))
        self.size = 1 + dims + width

    def forward(self, z: Tensor) -> Tensor:
        hidden = torch.tanh(nnf.linear(z, self.weight, self.bias))
        return torch.cat((torch.ones_like(z[..., :1]), z, hidden), -1)


class SequencePIC(nn.Module):
    """A homogeneous chain with neural functions. Called with points, it returns the ``Chain`` on them.

    The latent has d dimensions and the reference density N(0, I). The transition is a Gaussian step times a correction,

        p(z' | z) ∝ N(z'; μ(z), σ(z)²) · exp(⟨a(z), b(z')⟩),

    normalised over the grid. The nets are functions of z or of z', so that N points cost N evaluations and not N². With
    irregular times they also depend on the time dt since the step before, and the Gaussian step relaxes towards μ(z):
    its mean is z + (1 - e^(-k·dt)) (μ(z) - z) and its variance (1 - e^(-2k·dt)) σ(z)².
    """

    def __init__(
        self,
        families: Sequence[Family],  # of the columns
        dims: int = 2,  # d, the number of dimensions of the latent
        width: int = 32,  # the number of hidden units of each net
        rank: int = 16,  # the number of features of the correction of the transition
        points: int = 64,  # of the training grids; they bound the standard deviation of a step from below
        timed: bool = False,  # whether the transition depends on the time between steps
        generator: torch.Generator | None = None,  # of the initial values
    ) -> None:
        super().__init__()
        if not families:
            raise ArgumentError("families", "a family for at least one column", "none")
        self.families = tuple(families)
        self.dims, self.width = check_integer("dims", dims), check_integer("width", width)
        self.rank, self.timed = check_integer("rank", rank, 0), bool(timed)
        self.points = check_integer("points", points, 2)
        self.before = _Features(self.dims + self.timed, self.width, generator)
        self.after = _Features(self.dims, self.width, generator)
        self.emit = _Features(self.dims, self.width, generator)
        mean, spread = torch.zeros(self.before.size, dims), torch.zeros(self.before.size, dims)
        mean[1 : 1 + dims], spread[0] = 0.9 * torch.eye(dims), math.log(0.45)
        self.mean, self.spread = nn.Parameter(mean), nn.Parameter(spread)
        noise = torch.randn(self.after.size, self.rank, generator=generator) / math.sqrt(self.after.size)
        self.key, self.value = nn.Parameter(torch.zeros(self.before.size, self.rank)), nn.Parameter(noise)
        self.start = nn.Parameter(torch.zeros(self.after.size))
        self.rates = nn.Parameter(torch.zeros(dims)) if self.timed else None
        self.heads = nn.ParameterList(nn.Parameter(torch.zeros(self.emit.size, f.size)) for f in self.families)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        sizes = {"dims": self.dims, "width": self.width, "rank": self.rank, "points": self.points}
        return {"families": self.families, **sizes, "timed": self.timed}

    def forward(self, points: Tensor) -> Chain:
        """The chain on points ``(N, d)`` of equal weight under N(0, I)."""
        z = points.to(self.mean.dtype)
        after = self.after(z)
        # The points have equal weights under φ, so densities are divided by φ.
        reference = 0.5 * z.square().sum(1)  # (N,)
        log_start = after @ self.start
        value = after @ self.value
        floor = 1.25 * self.points ** (-1 / self.dims)  # the smallest standard deviation that the grids resolve
        single = None if self.timed else self._tables(z, None, value, reference, floor)

        def transition(gaps: Tensor) -> Tensor:
            if single is None:
                return self._tables(z, gaps, value, reference, floor)
            return single if len(gaps) == 1 and bool(gaps == 1) else repeated(single[0], gaps)

        emit = self.emit(z)
        inputs = tuple(
            (family, family.constrain(emit @ head).unsqueeze(0))
            for family, head in zip(self.families, self.heads, strict=True)
        )
        return Chain(z, normalised(log_start), transition, inputs)

    def _tables(self, z: Tensor, gaps: Tensor | None, value: Tensor, reference: Tensor, floor: float) -> Tensor:
        """The transitions ``(D, N, N)`` of gaps ``(D,)``; without gaps, the one transition ``(1, N, N)``."""
        if gaps is None:
            before = self.before(z).unsqueeze(0)  # (1, N, F)
            mean, spread = before @ self.mean, (before @ self.spread).clamp(-8, 4).exp()  # (1, N, d)
            key = before @ self.key
        else:
            assert self.rates is not None
            length = gaps.to(z.dtype).clamp(min=1e-6).reshape(-1, 1, 1)
            seen = length.log().clamp(-6, 6).expand(-1, len(z), 1)
            before = self.before(torch.cat((z.expand(len(gaps), -1, -1), seen), 2))  # (D, N, F)
            decay = torch.exp(-nnf.softplus(self.rates) * length)  # (D, 1, d)
            mean = z + (1 - decay) * (before @ self.mean - z)
            spread = (1 - decay.square()).sqrt() * (before @ self.spread).clamp(-8, 4).exp()
            key = (before @ self.key) * (1 - decay.prod(2, keepdim=True))
        precision = 1 / (spread.square() + floor**2)
        # -½ Σ_j (z'_j - μ_j)² / σ_j² as matrix products, without the terms that do not depend on z'.
        logs = (mean * precision) @ z.T - 0.5 * precision @ z.square().T
        return normalised(logs + key @ value.T + reference)


@torch.no_grad()
def initialise(model: SequencePIC, sequences: Sequence[Tensor]) -> None:
    """Initialise the nets by least squares, from a guess of the latent at every step.

    The guess consists of the principal components of a window of three steps, transformed to normal scores. They
    include level and slope of a series, so the initial transition already follows trends and cycles.
    """
    guesses = _guesses(model, sequences)
    before = torch.cat([z[:-1] for z in guesses])
    after = torch.cat([z[1:] for z in guesses])
    if len(before) > model.before.size:
        seen = torch.cat((before, torch.zeros(len(before), 1)), 1) if model.timed else before
        features = model.before(seen.to(model.mean.dtype))
        if model.timed:
            decay = torch.exp(-nnf.softplus(model.rates.detach()))  # type: ignore[union-attr]
            after = before + (after - before) / (1 - decay)
        linear = features[:, : 1 + model.dims]
        fitted = _least_squares(linear, after.to(features.dtype))
        model.mean[: 1 + model.dims] = fitted
        spread = (after - linear @ fitted).std(0).clamp(0.1, 2.0)
        model.spread[0] = spread.log()
    z, x = torch.cat(guesses), torch.cat(list(sequences))
    _initialise_emissions(model, z, x)


def _guesses(model: SequencePIC, sequences: Sequence[Tensor]) -> list[Tensor]:
    """A guess of the latent at every step of each sequence, ``(T, d)``."""
    rows = [_numbers(model.families, x) for x in sequences]
    rows = [row - torch.cat(rows).mean(0) for row in rows]
    windows = [torch.cat((row[[0, *range(len(row) - 1)]], row, row[[*range(1, len(row)), -1]]), 1) for row in rows]
    together = torch.cat(windows)
    _, _, axes = torch.linalg.svd(together.T @ together / len(together))
    scores = together @ axes[: model.dims].T  # (T, ≤ d)
    if scores.shape[1] < model.dims:
        more = torch.randn(len(scores), model.dims - scores.shape[1], generator=torch.Generator().manual_seed(0))
        scores = torch.cat((scores, more.to(scores)), 1)
    ranks = scores.argsort(0).argsort(0).double()
    normal = torch.special.ndtri((ranks + 0.5) / len(ranks))
    return list(normal.split([len(x) for x in sequences]))


def _numbers(families: Sequence[Family], x: Tensor) -> Tensor:
    """Columns as numbers of about unit variance, with indicators for categories."""
    parts = []
    for column, family in enumerate(families):
        values = x[:, column].double()
        table = family.table(family.constrain(torch.zeros(1, family.size)))
        if table is not None and family.discrete and type(family).__name__ in ("Categorical", "Bernoulli"):
            found = (values.unsqueeze(1) == torch.arange(table.shape[-1])).double()
            parts.append(found / found.mean(0).clamp(min=1e-3).sqrt() * ~values.isnan().unsqueeze(1))
            continue
        seen = values[~values.isnan()]
        middle = seen.median() if len(seen) else values.new_zeros(())
        scale = (seen - middle).abs().mean().clamp(min=1e-12) if len(seen) else values.new_ones(())
        parts.append(((values - middle) / scale).nan_to_num(0.0).clamp(-4, 4).unsqueeze(1))
    return torch.cat(parts, 1)


def _initialise_emissions(model: SequencePIC, z: Tensor, x: Tensor) -> None:
    """Fit the family of every column around some points of the latent, and the heads to these parameters."""
    if len(z) > 4096:
        some = torch.linspace(0, len(z) - 1, 4096).long()
        z, x = z[some], x[some]
    points = normal_points(64 * model.dims, model.dims)  # (K, d)
    kernel = torch.exp(-0.5 * torch.cdist(points, z).square() / (_KERNEL**2 * model.dims))  # (K, B)
    features = model.emit(points.to(model.mean.dtype)).double()
    source = torch.Generator().manual_seed(0)
    for column, (family, head) in enumerate(zip(model.families, model.heads, strict=True)):
        seen = ~x[:, column].isnan()
        values = x[seen, column].double().unsqueeze(0)  # (1, B)
        if not values.numel():
            continue
        flows = kernel[:, seen].unsqueeze(0)
        params = family.initial(values, len(points), source)
        try:
            for flow in (torch.ones_like(flows), flows, flows):
                found = family.expected_statistics(params, values, flow)
                params = family.from_statistics(params, found, smoothing=1.0)
            raw = family.unconstrain(params)[0]
        except NotImplementedError:  # a family without EM
            continue
        head.copy_(_least_squares(features, raw))


def _least_squares(features: Tensor, targets: Tensor) -> Tensor:
    """Coefficients ``(F, K)`` of targets ``(B, K)`` on features ``(B, F)``, by ridge regression."""
    a, b = features.double(), targets.double()
    ridge = _RIDGE * len(a) * torch.eye(a.shape[1], dtype=a.dtype)
    ridge[0, 0] = 0.0
    found: Tensor = torch.linalg.solve(a.T @ a + ridge, a.T @ b)
    return found.to(features.dtype)


# Files: safetensors and JSON, never pickle


KIND = "SequencePIC"
_SETTINGS = {"dims": int, "width": int, "rank": int, "points": int, "timed": bool}
_MOST = 2**20  # the largest size in a description
# The transition of a saved model may have this many weights, or this many for each parameter.
_LEAST_WEIGHTS, _WEIGHTS_PER_NUMBER = 2**23, 1024
_CONTAINERS = ("numpy", "mapping", "pandas", "polars", "pyarrow", "modin", "cudf")


def save_chain(
    model: SequencePIC,
    path: str | PathLike[str],
    schema: Mapping[str, Any],
    about: Mapping[str, Any],
    summary: Mapping[str, Any],
) -> None:
    """Write a chain, its columns and its summary to a file, atomically."""
    _check_size(model)
    tensors = {name: tensor.detach().cpu().float().contiguous() for name, tensor in model.state_dict().items()}
    for name, tensor in tensors.items():
        if bool(tensor.isnan().any()):
            raise ArgumentError("model", "parameters that are numbers", f"NaN in {name}")
    settings = {name: value for name, value in model.settings.items() if name != "families"}
    description = {"kind": KIND, "settings": settings, "schema": dict(schema), "about": dict(about)}
    write(path, *pack(description | {"summary": dict(summary)}, tensors))


def load_chain(
    path: Path, families: Sequence[type[Family]]
) -> tuple[SequencePIC, Schema, dict[str, Any], dict[str, Any]]:
    """Read what ``save_chain`` wrote; other files raise an error."""
    file = file_of(path, "SequenceModel.save")
    with refusing(file):
        metadata, tensors, _ = read_file(file)
        description = read_description(metadata)
        if description.get("kind") != KIND:
            remedy = "pc.load and pc.TableModel.load read others"
            raise ArgumentError("kind", KIND, repr(description.get("kind"))[:80], remedy)
        schema = Schema.from_json(take(description, "schema", dict), families)
        settings = take(description, "settings", dict)
        only(settings, _SETTINGS, "settings")
        options: dict[str, Any] = {name: take(settings, name, wanted) for name, wanted in _SETTINGS.items()}
        if any(not 0 <= int(value) <= _MOST for value in options.values()):
            raise ArgumentError("settings", f"sizes up to {_MOST:,}", repr(options)[:80])
        # A model on "meta" would need no check, but import torch's compiler, which takes seconds.
        numbers, features = sum(tensor.numel() for tensor in tensors.values()), 1 + options["dims"] + options["width"]
        if features * (options["dims"] + options["rank"] + sum(f.size for f in schema.families)) > numbers:
            raise ArgumentError("settings", f"sizes of a model of {numbers:,} parameters", repr(options)[:80])
        model = SequencePIC(schema.families, **options, generator=torch.Generator())
        _check_size(model)
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        check_tensors(tensors, description, shapes, torch.float32)
        model.load_state_dict(tensors, assign=True)
        about = _about(take(description, "about", dict))
    return model, schema, about, take(description, "summary", dict)


def _check_size(model: SequencePIC) -> None:
    """Raise an error if the chain would be far larger than the model."""
    weights = (2 * model.points) ** 2
    most = max(_LEAST_WEIGHTS, _WEIGHTS_PER_NUMBER * sum(p.numel() for p in model.parameters()))
    if weights > most:
        expected = f"points for at most {most:,} weights"
        raise ArgumentError("points", expected, f"{model.points}, for {weights:,}", "use fewer points, or wider nets")


def _about(entry: dict[str, Any]) -> dict[str, Any]:
    only(entry, {"by", "time", "unit", "container", "dates"}, "about")
    for name in ("by", "time"):
        if entry.get(name) is not None:
            take(entry, name, str)
    unit = take(entry, "unit", float)
    if not 0 < unit < math.inf:
        raise ArgumentError("unit", "a positive number", unit)
    if take(entry, "container", str) not in _CONTAINERS:
        raise ArgumentError("container", " or ".join(_CONTAINERS), entry["container"])
    take(entry, "dates", bool)
    return entry
