# SPDX-License-Identifier: Apache-2.0
"""Mistakes in data, masks and evidence: a ValueError that names what is wrong, what was expected and what came."""

from __future__ import annotations

import math

import pytest
import torch

import picirc as pc
from table_circuits import COLUMNS, TABLES, columns_data

QPC = TABLES["chain_mixed"].qpc()  # Bernoulli, Categorical(3), Binomial(3), Categorical(2)
X = torch.zeros(3, 4)
NAN = torch.full((4,), math.nan)


def wrong(column: int, value: float, row: int = 1) -> torch.Tensor:
    x = X.clone()
    x[row, column] = value
    return x


QUERIES = {
    "log_prob": lambda x: QPC.log_prob(x),
    "latents": lambda x: QPC.latents(x),
    "cdf": lambda x: QPC.cdf(x),
}
GIVEN = {
    "log_prob": lambda e: QPC.log_prob(X, given=e),
    "sample": lambda e: QPC.sample(2, given=e),
    "marginals": lambda e: QPC.marginals(e),
    "mean": lambda e: QPC.mean(e),
    "variance": lambda e: QPC.variance(given=e),
    "covariance": lambda e: QPC.covariance(e),
    "mpe": lambda e: QPC.mpe(e),
    "cdf": lambda e: QPC.cdf(X, given=e),
}
each_query = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
each_given = pytest.mark.parametrize("query", GIVEN.values(), ids=GIVEN.keys())


@each_query
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X[:, :3], r"x: expected a tensor \((batch|...), 4\), one column per variable, got shape \(3, 3\)\.$"),
        (X + 1j, r"x: expected real numbers, got torch\.complex64\.$"),
        ("zeros", r"x: expected a tensor, or an array of numbers, got str\.$"),
        (None, r"x: expected a tensor, or an array of numbers, got NoneType\.$"),
        ([[0, 0, 0, 0], [0, 0]], r"x: expected a tensor, or an array of numbers, got list\.$"),
    ],
)
def test_shapes_and_types(query, x, message):
    with pytest.raises(pc.ArgumentError, match=message):
        query(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X[0], r"x: expected a tensor \(batch, 4\).*, got shape \(4,\); a single data point is x\[None\]\.$"),
        (X[None], r"x: expected a tensor \(batch, 4\).*, got shape \(1, 3, 4\)\.$"),
        (X[:0], r"x: expected at least one data point, got an empty batch\.$"),
    ],
)
def test_posteriors_are_those_of_rows(x, message):
    with pytest.raises(pc.ArgumentError, match=message):
        QPC.latents(x)


@each_given
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (NAN[:3], r"given: expected a tensor \(batch, 4\) or \(4,\), one column per variable, got shape \(3,\)\.$"),
        (NAN.expand(2, 1, 4), r"given: expected a tensor \(batch, 4\) or .* per variable, got shape \(2, 1, 4\)"),
        (NAN.expand(0, 4), r"given: expected at least one data point, got an empty batch"),
        ("nothing", r"given: expected a tensor, or an array of numbers, got str"),
        (
            torch.tensor([2.0, math.nan, math.nan, math.nan]),
            r"variable x0: expected integers from 0 to 1 for Bern.*2\.0",
        ),
    ],
)
def test_evidence(query, given, message):
    with pytest.raises(pc.ArgumentError, match=message):
        query(given)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (wrong(0, 2.0), r"variable x0: expected integers from 0 to 1 for Bernoulli\(\), got 2\.0 in row 1"),
        (wrong(1, 3.0), r"variable x1: expected integers from 0 to 2 for Categorical\(3\), got 3\.0 in row 1"),
        (wrong(1, -1.0), r"variable x1: expected integers from 0 to 2 .*got -1\.0 in row 1"),
        (wrong(1, 0.5), r"variable x1: expected integers from 0 to 2 .*got 0\.5 in row 1"),
        (wrong(2, -2.0), r"variable x2: expected integers from 0 to 3 for Binomial\(3\), got -2\.0 in row 1"),
        (wrong(3, math.inf), r"variable x3: expected integers from 0 to 1 .*got inf in row 1"),
        (wrong(3, 7.0, row=2), r"variable x3: .*got 7\.0 in row 2; recode the values, or give the variable another"),
    ],
)
def test_values_of_finite_variables(x, message):
    with pytest.raises(pc.ArgumentError, match=message):
        QPC.log_prob(x)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, math.inf, r"variable x0: expected finite numbers.*got inf in row 1"),
        (1, -math.inf, r"variable x1: expected finite numbers.*got -inf in row 1"),
        (2, math.inf, r"variable x2: expected finite numbers.*got inf in row 1"),
        (3, -1.0, r"variable x3: expected counts.*for Poisson\(\), got -1\.0 in row 1"),
        (3, 1.5, r"variable x3: expected counts.*for Poisson\(\), got 1\.5 in row 1"),
        (4, 3.0, r"variable x4: expected integers from 0 to 2 for Categorical\(3\), got 3\.0 in row 1"),
    ],
)
def test_values_of_other_variables(column, value, message):
    x = columns_data(3)
    x[1, column] = value
    for table in COLUMNS.values():
        with pytest.raises(pc.ArgumentError, match=message):
            table.qpc().log_prob(x)


@pytest.mark.parametrize(
    ("mask", "got"),
    [
        (torch.zeros(3, 4), r"torch\.float32 of shape \(3, 4\)"),
        (torch.zeros(3, 4, dtype=torch.uint8), r"torch\.uint8 of shape \(3, 4\)"),
        (torch.zeros(4, 3, dtype=torch.bool), r"torch\.bool of shape \(4, 3\)"),
        (torch.zeros(4, dtype=torch.bool), r"torch\.bool of shape \(4,\)"),
        (torch.zeros(3, 4, 1, dtype=torch.bool), r"torch\.bool of shape \(3, 4, 1\)"),
    ],
)
def test_masks(mask, got):
    message = rf"mask: expected a boolean tensor of x's shape \(3, 4\), True where a value is missing, got {got}\.$"
    for query in (QPC.log_prob, QPC.latents):
        with pytest.raises(pc.ArgumentError, match=message):
            query(X, mask=mask)


def test_contradictions_between_data_and_evidence():
    given = torch.tensor([math.nan, 2.0, math.nan, math.nan])
    with pytest.raises(
        pc.ArgumentError,
        match=r"given: expected for variable x1 the value of x, 0 in row 0, got 2; put NaN into x there",
    ):
        QPC.log_prob(X, given=given)
    each = torch.full((3, 4), math.nan)
    each[2, 3] = 1.0
    with pytest.raises(pc.ArgumentError, match=r"given: expected for variable x3 the value of x, 0 in row 2, got 1"):
        QPC.log_prob(X, given=each)


def test_evidence_in_another_precision_is_no_contradiction():
    qpc, x = COLUMNS["tree_of_columns"].qpc(), columns_data(3)
    x[:, 0] = 0.1  # not the same number in single and in double precision
    given = torch.full((5,), math.nan)
    given[0] = 0.1
    asked = x.clone()
    asked[:, 0] = math.nan
    torch.testing.assert_close(qpc.log_prob(x, given=given), qpc.log_prob(asked, given=given), rtol=0, atol=0)


def test_data_with_a_gradient():
    """Only the log-likelihood has one; and what autograd would record of the buffers may not stay in them."""
    qpc, x = COLUMNS["tree_of_columns"].qpc(), columns_data(3)
    expected = qpc.log_prob(x)
    message = r"x: expected data that need no gradient, got a tensor that requires one; .* use x\.detach\(\)\.$"
    for query in (qpc.cdf, qpc.latents):
        with pytest.raises(pc.ArgumentError, match=message):
            query(x.clone().requires_grad_())
    with pytest.raises(pc.ArgumentError, match="given: expected data that need no gradient"):
        qpc.mean(x.clone().requires_grad_())
    with pytest.raises(
        pc.ArgumentError, match=r"x: expected data that need no gradient, .* the variables are discrete"
    ):
        QPC.log_prob(X.clone().requires_grad_())
    with torch.no_grad():
        torch.testing.assert_close(qpc.log_prob(x.clone().requires_grad_()), expected)
    torch.testing.assert_close(qpc.log_prob(x), expected)


def test_numbers_of_rows():
    with pytest.raises(pc.ArgumentError, match=r"given: expected one row, or as many as x \(3\), got 2 rows"):
        QPC.log_prob(X, given=NAN.expand(2, 4))


@pytest.mark.parametrize("shape", [-1, 1.5, "2", True, (2, -1), (1.0,), None])
def test_numbers_of_samples(shape):
    with pytest.raises(pc.ArgumentError, match="sample_shape: expected a non-negative integer, got"):
        QPC.sample(shape)


def test_errors_are_value_errors():
    for error in (pc.ArgumentError, pc.StructureError, pc.ImpossibleEvidenceError):
        assert issubclass(error, ValueError)


@pytest.mark.parametrize(("states", "message"), [(0, "0"), (-2, "-2"), (2.0, "2.0"), (True, "True")])
def test_numbers_of_states(states, message):
    with pytest.raises(pc.ArgumentError, match=f"states: expected a positive integer, got {message}"):
        pc.HCLT(pc.chain(2), pc.Bernoulli(), states=states)
