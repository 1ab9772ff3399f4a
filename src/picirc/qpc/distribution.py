# SPDX-License-Identifier: Apache-2.0
"""The QPC: a circuit with its parameters, as a distribution that answers queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from picirc.autograd import uncompiled
from picirc.checks import check_integer
from picirc.engine.compiled import CompiledCircuit, Parameters
from picirc.engine.evidence import Intervals, Modes, Points, Region, Restricted
from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.qpc.marginals import LatentGrid, LatentPosterior, Marginals, components, covariance, latent_posteriors
from picirc.qpc.mpe import most_probable
from picirc.qpc.pruning import prune
from picirc.qpc.sampling import draw
from picirc.qpc.validation import Support, as_batch, as_bounds, as_mask, as_points, as_rows, as_tensor, check_possible
from picirc.symbolic.circuit import Properties


class Moment(Tensor):
    """A moment of the distribution, ``(variables,)``, which can be called for the same moment given evidence.

    Distributions of torch have ``mean`` and ``variance`` as attributes. Evidence needs a function.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    _given: Callable[[Tensor], Tensor]

    @staticmethod
    def make(value: Tensor, given: Callable[[Tensor], Tensor]) -> Moment:
        """Attach the function ``given`` to the value without evidence."""
        moment = value.as_subclass(Moment)
        moment._given = given
        return moment

    def __call__(self, given: Tensor | None = None) -> Tensor:
        """Return the moment given evidence ``(batch, variables)`` or ``(variables,)``; NaN is unknown."""
        return self.as_subclass(Tensor) if given is None else self._given(given)

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self.as_subclass(Tensor))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(Tensor).detach().__reduce_ex__(protocol)  # a copy is an ordinary tensor

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.as_subclass(Tensor).detach().clone()


class QPC(Distribution):
    """A probabilistic circuit that approximates an integral circuit: a distribution over its observed variables.

    Every query is exact for this circuit unless its documentation says otherwise. ``error`` estimates how far the
    circuit is from the integral. Data are ``(batch, variables)`` and NaN is missing. Evidence, ``given``, is the same
    or a single row ``(variables,)``.

    Args:
        compiled: The compiled circuit.
        parameters: Its parameters.
        variables: The names of the observed variables, in the order of the columns.
        families: The family of each variable.
        latents: The grids of the latents.
        properties: The structural properties of the circuit.
        refine: Returns the same quadrature on a finer grid; None if there is none.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = False

    def __init__(
        self,
        compiled: CompiledCircuit,
        parameters: Parameters,
        variables: Sequence[str],
        families: Sequence[Family],
        latents: Iterable[LatentGrid],
        properties: Properties,
        refine: Callable[[], QPC] | None = None,
    ) -> None:
        self.compiled = compiled
        self.parameters = parameters
        self.variables = tuple(variables)
        self.families = tuple(families)
        self._latents = latents
        self.properties = properties
        self._refine = refine
        self._refined: QPC | None = None
        super().__init__(event_shape=torch.Size([len(self.variables)]), validate_args=False)

    @cached_property
    def grids(self) -> tuple[LatentGrid, ...]:
        """The grids of the latents."""
        return tuple(self._latents)

    @property
    def support(self) -> constraints.Constraint:
        """The rows that the families of the variables accept; NaN is accepted everywhere."""
        return Support(self.families)

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the parameters."""
        return self.parameters.like.dtype

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.parameters.like.device

    @property
    def size(self) -> int:
        """The number of sum weights."""
        return sum(t.numel() for t in (*self.parameters.weights, *self.parameters.mixtures))

    @uncompiled
    def log_prob(self, value: Tensor, mask: Tensor | None = None, given: Tensor | None = None) -> Tensor:
        """Return ``log p(x)``, or ``log p(x | e)``, for every row; missing values are integrated out exactly.

        Args:
            value: The data ``(..., variables)``; NaN is missing.
            mask: True where a value is missing, in addition to NaN.
            given: Evidence ``e``. Where it has a value, ``value`` must have the same value or NaN.

        Returns:
            ``(...)``, differentiable with respect to the parameters and to the values of continuous variables.
        """
        rows, shape = as_batch(value, "x", len(self.variables), gradient=True)
        hidden = None if mask is None else as_mask(mask, (*shape, len(self.variables)))
        points = as_points(rows, hidden, self.families, self.variables, self.parameters.like)
        if len(rows) == 0:
            return self.parameters.like.new_zeros(shape)
        if given is None:
            if self.properties.conditions:
                self._check_parents(points, "x")
            return self.compiled.log_prob(points, self.parameters).view(shape)
        known = as_tensor(given, "given")
        if len(shape) > 1 and known.shape[:-1] == shape:
            known = known.flatten(0, -2)
        evidence = self._evidence(known, gradient=True)
        joint = self._joined(points, self._expanded(evidence, points.batch))
        self._check_parents(joint, "x")
        base = self.compiled.log_prob(evidence, self.parameters)
        check_possible(base.detach())
        return (self.compiled.log_prob(joint, self.parameters) - base).view(shape)

    @uncompiled
    def sample(
        self,
        sample_shape: int | Sequence[int] = (),
        given: Tensor | None = None,
        generator: torch.Generator | None = None,
        regions: Mapping[str, Region] | None = None,
    ) -> Tensor:
        """Draw from the distribution, or complete evidence by draws from the conditional distribution.

        Args:
            sample_shape: The number of samples, or a shape as in torch.
            given: Evidence ``(variables,)`` or ``(batch, variables)``.
            generator: The source of randomness; by default that of torch.
            regions: Ranges and sets that some variables are in, by name.

        Returns:
            ``(*sample_shape, variables)``, or ``(*sample_shape, batch, variables)`` for a batch of evidence.
        """
        sizes = sample_shape if isinstance(sample_shape, Sequence) else (sample_shape,)
        shape = tuple(check_integer("sample_shape", size, 0) for size in sizes)
        source = generator
        if source is None:
            seed = int(torch.randint(2**62, ()).item())
            source = torch.Generator(device=self.device).manual_seed(seed)
        evidence = self._restricted(given, regions or {})
        drawn = draw(self.compiled, self.parameters, evidence, math.prod(shape), source)
        single = given is None or torch.as_tensor(given).ndim == 1
        return drawn.view(*shape, *((len(self.variables),) if single else drawn.shape[1:]))

    @uncompiled
    def log_evidence(self, given: Tensor | None = None, regions: Mapping[str, Region] | None = None) -> Tensor:
        """Return ``log p(e, regions)`` for every row of the evidence: a density of values times a probability.

        Args:
            given: Exact values, ``(variables,)`` or ``(batch, variables)``.
            regions: Ranges and sets that some variables are in, by name.
        """
        return self.compiled.log_prob(self._restricted(given, regions or {}), self.parameters.detach())

    @uncompiled
    def marginals(self, given: Tensor | None = None) -> Marginals:
        """Return ``p(X_i | e)`` for every variable, by one pass up and one down."""
        points = self._evidence(given)
        self._check_parents(points, "given", all_of_them=True)
        found, values = components(self.compiled, self.parameters, points)
        check_possible(values)
        return Marginals(found, points, self.variables, self._result_shape(given))

    def rsample(self, sample_shape: Sequence[int] = torch.Size()) -> Tensor:
        """Not available: samples depend on discrete states, which have no derivative."""
        raise NotImplementedError(
            "samples of a circuit are not differentiable, because they depend on discrete states; use qpc.sample(n) "
            "with the gradient of qpc.log_prob(x)."
        )

    def entropy(self) -> Tensor:
        """Not available: ``−E[log p(X)]`` has no closed form."""
        raise NotImplementedError(
            "the entropy of a circuit has no closed form; estimate it by -qpc.log_prob(qpc.sample(n)).mean()."
        )

    def icdf(self, value: Tensor) -> Tensor:
        """Not available: the distribution function of several variables has no inverse."""
        raise NotImplementedError(
            "the distribution function of several variables has no inverse; draw with qpc.sample(n), or use qpc.cdf(x)."
        )

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> QPC:
        """Not available: a circuit is a single distribution."""
        raise NotImplementedError(
            "a circuit is one distribution without a batch shape; use qpc.sample(shape), or several rows of evidence."
        )

    @property
    def mean(self) -> Moment:
        """``E[X]``, ``(variables,)``; ``mean(given=e)`` is ``E[X | e]`` in the shape of ``e``."""
        return self._moment("mean")

    @property
    def variance(self) -> Moment:
        """``Var[X]``, ``(variables,)``; ``variance(given=e)`` is ``Var[X | e]`` in the shape of ``e``."""
        return self._moment("variance")

    @uncompiled
    def covariance(self, given: Tensor | None = None) -> Tensor:
        """Return ``Cov[X | e]``, ``(variables, variables)``, or ``(batch, variables, variables)`` for a batch.

        The cost is one data point for every variable that is not observed.
        """
        self._require_decomposable("covariance")
        marginals = self.marginals(given)
        points = self._evidence(given)
        size = len(self.variables)
        moments = (marginals.mean.reshape(-1, size), marginals.variance.reshape(-1, size))
        found = covariance(self.compiled, self.parameters, points, *moments)
        return found if len(self._result_shape(given)) == 2 else found[0]

    def cdf(self, value: Tensor, given: Tensor | None = None) -> Tensor:
        """Return ``P(X_1 ≤ x_1, …, X_D ≤ x_D | e)`` for every row; NaN leaves a variable unrestricted."""
        high = as_batch(value, "x", len(self.variables))[0].to(self.parameters.like).view(torch.as_tensor(value).shape)
        high = high.masked_fill(high.isnan(), torch.inf)
        return self.log_interval(torch.full_like(high, -torch.inf), high, given).exp()

    @uncompiled
    def log_interval(self, low: Tensor, high: Tensor, given: Tensor | None = None) -> Tensor:
        """Return ``log P(low ≤ X ≤ high | e)`` for every row.

        Args:
            low: ``(..., variables)``; −inf where there is no lower bound.
            high: ``(..., variables)``; +inf where there is no upper bound.
            given: Exact values. A value outside its interval makes the probability zero.
        """
        self._require_decomposable("the probability of an interval")
        below, above, shape = as_bounds(low, high, len(self.variables), self.parameters.like)
        if below.shape[1] == 0:
            return self.parameters.like.new_zeros(shape)
        evidence = self._evidence(given)
        known = self._expanded(evidence, below.shape[1])
        joint = self.compiled.log_prob(Intervals(known, below, above), self.parameters)
        if given is None:
            return joint.view(shape)
        base = self.compiled.log_prob(evidence, self.parameters)
        check_possible(base)
        return (joint - base).view(shape)

    @uncompiled
    def mpe(self, given: Tensor | None = None, rounds: int = 1) -> Tensor:
        """Return evidence with jointly probable values in place of the missing ones; an approximation.

        The most probable values are NP-hard to find, because the sums of these circuits are not deterministic. The
        better of two candidates is returned. One is max-product decoding, which is exact if a single assignment of the
        latents dominates. The other consists of the modes of the marginals given the evidence (the means of continuous
        variables), improved by coordinate ascent. With one round this takes four passes up and three down.

        Args:
            given: Evidence ``(variables,)`` or ``(batch, variables)``.
            rounds: The rounds of the ascent. Each changes one variable of each data point and takes two passes.
        """
        check_integer("rounds", rounds, least=0)
        points = self._evidence(given)
        central = self.marginals(given).modes().reshape(-1, len(self.variables))
        found = most_probable(self.compiled, self.parameters, points, central, rounds)
        return found.reshape(self._result_shape(given)).detach()

    @uncompiled
    def log_mpe_bound(self, given: Tensor | None = None) -> Tensor:
        """Return an upper bound on the log-likelihood of evidence with any values in place of the missing ones.

        It is ``log Σ_z p(z, e) ∏ max_x p(x | z)``: each state has its own most probable values.
        """
        found = self.compiled.log_prob(Modes(self._evidence(given)), self.parameters.detach())
        return found.reshape(self._result_shape(given)[:-1])

    @uncompiled
    def latents(self, x: Tensor, mask: Tensor | None = None) -> Mapping[str, LatentPosterior]:
        """Return the posterior of every latent given each data point: density on the grid, mean, entropy."""
        return latent_posteriors(self.compiled, self.parameters, self.grids, self._points(x, mask))

    def prune(self, threshold: float) -> tuple[QPC, float]:
        """Drop states of prior probability below ``threshold``.

        Returns:
            The smaller circuit, and an upper bound on the total variation distance between the two distributions.
        """
        self._require_decomposable("pruning")
        compiled, parameters, grids, bound = prune(self.compiled, self.parameters, self.grids, threshold)
        return QPC(compiled, parameters, self.variables, self.families, grids, self.properties), bound

    def refined(self) -> QPC:
        """Return the same quadrature with more than twice the points, on derived intervals that are a quarter wider."""
        if self._refine is None:
            raise ArgumentError(
                "qpc", "a circuit that was integrated from a symbolic one", "one made from parameters",
                "integrate again with more points and compare",
            )  # fmt: skip
        if self._refined is None:
            self._refined = self._refine()
        return self._refined

    def error(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Estimate the quadrature error ``|log p(x) − log p̂(x)|`` of every row by refinement.

        The circuit is integrated again with more than twice the points and on wider intervals. For a rule of order p
        the difference is about 1 − 2.5⁻ᵖ times the error; for spectral rules it is the error itself. The estimate is
        never below the rounding error.
        """
        with torch.no_grad():
            mine, finer = self.log_prob(x, mask), self.refined().log_prob(x, mask)
            rounding = torch.finfo(self.dtype).eps * (1 + mine.abs())
            difference = (mine - finer).abs().clamp(min=rounding)
            return torch.where(torch.isneginf(mine) & torch.isneginf(finer), 0.0, difference)

    def __repr__(self) -> str:
        return f"QPC({len(self.variables)} variables, {self.size:,} weights, {str(self.dtype).split('.')[-1]})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the graph of the parameters."""
        return {**self.__dict__, "parameters": self.parameters.detach(), "_refined": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> QPC:
        numbers = Parameters.of([t.detach().clone() for t in self.parameters.tensors], self.parameters.counts)
        shared = (self.variables, self.families, self._latents, self.properties, self._refine)
        return QPC(self.compiled, numbers, *shared)

    def _moment(self, name: str) -> Moment:
        def moment(given: Tensor | None = None) -> Tensor:
            found: Tensor = getattr(self.marginals(given), name)
            return found

        if self.properties.conditions:
            return moment  # type: ignore[return-value]  # it needs evidence
        return Moment.make(moment(), moment)

    def _points(self, x: Tensor, mask: Tensor | None = None) -> Points:
        rows = as_rows(x, "x", len(self.variables))
        points = as_points(rows, mask, self.families, self.variables, self.parameters.like)
        self._check_parents(points, "x")
        return points

    def _evidence(self, given: Tensor | None, gradient: bool = False) -> Points:
        if given is None:
            given = self.parameters.like.new_full((1, len(self.variables)), torch.nan)
        rows = as_rows(given, "given", len(self.variables), single=True, gradient=gradient)
        points = as_points(rows, None, self.families, self.variables, self.parameters.like, "given")
        self._check_parents(points, "given")
        return points

    def _check_parents(self, points: Points, argument: str, all_of_them: bool = False) -> None:
        """Raise if an observed parent of an observed variable, or of any with ``all_of_them``, is missing."""
        for variable, parents in self.properties.conditions.items():
            child = points.values[self.variables.index(variable)]
            asked = torch.ones_like(child, dtype=torch.bool) if all_of_them else ~child.isnan()
            for parent in parents:
                wrong = (asked & points.values[self.variables.index(parent)].isnan()).nonzero().flatten()
                if len(wrong):
                    what = "" if all_of_them else f" in which {variable!r} is observed"
                    raise ArgumentError(
                        argument,
                        f"a value of {parent!r} in every row{what}",
                        f"NaN in row {int(wrong[0])}",
                        f"{variable!r} is conditioned on {parent!r}, which the circuit cannot integrate out; "
                        "give it a value, or let both depend on a latent",
                    )

    def _require_decomposable(self, purpose: str) -> None:
        if self.properties.conditions:
            self.properties.require("decomposable", purpose=purpose)

    def _restricted(self, given: Tensor | None, regions: Mapping[str, Region]) -> Points | Restricted:
        points = self._evidence(given)
        if not regions:
            return points
        self._require_decomposable("evidence by range or set")
        unknown = sorted(set(regions) - set(self.variables))
        if unknown:
            raise ArgumentError("regions", f"names among {', '.join(self.variables)}", unknown[0])
        return Restricted(points, {self.variables.index(name): region for name, region in regions.items()})

    def _joined(self, points: Points, evidence: Points) -> Points:
        """Combine values and evidence, which must not contradict each other."""
        mine, theirs = points.values, evidence.values
        # Equal up to the rounding error of single precision.
        same = torch.isclose(mine, theirs, rtol=1e-6, atol=0.0)
        wrong = (~mine.isnan() & ~theirs.isnan() & ~same).nonzero()
        if len(wrong):
            column, row = wrong[0].tolist()
            raise ArgumentError(
                "given", f"for variable {self.variables[column]} the value of x, {mine[column, row]:g} in row {row}",
                f"{theirs[column, row]:g}", "put NaN into x there",
            )  # fmt: skip
        values = torch.where(theirs.isnan(), mine, theirs)
        missing = values.isnan()
        return Points(values, missing if bool(missing.any()) else None)

    def _result_shape(self, given: Tensor | None) -> torch.Size:
        return self.event_shape if given is None else torch.as_tensor(given).shape

    def _expanded(self, evidence: Points, batch: int) -> Points:
        if evidence.batch == batch:
            return evidence
        if evidence.batch != 1:
            raise ArgumentError("given", f"one row, or as many as x ({batch})", f"{evidence.batch} rows")
        missing = None if evidence.missing is None else evidence.missing.expand(-1, batch)
        return Points(evidence.values.expand(-1, batch), missing)
