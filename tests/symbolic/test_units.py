# SPDX-License-Identifier: Apache-2.0
"""The four units as frozen values, and what they refuse to be made of."""

from __future__ import annotations

import dataclasses
import math

import pytest

import picirc as pc
from cases import LG
from picirc.errors import ArgumentError


def x(name: str = "x", *parents: str) -> pc.Input:
    return pc.Input(name, LG(dict.fromkeys(parents, 1.0)))


UNITS = {
    "input": x(),
    "integral": pc.Integral("z", x("x", "z"), LG()),
    "sum": pc.Sum([x(), x()], [0.5, 0.5]),
    "product": pc.Product(x("x"), x("y")),
    "factor": pc.Factor(("z",), LG()),
}


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_a_unit_is_frozen(unit):
    for field in dataclasses.fields(unit):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(unit, field.name, None)


def test_units_are_compared_by_identity():
    """Two units that look alike are two units; using one object twice is what shares it."""
    function = LG()
    one, other = pc.Input("x", function), pc.Input("x", function)
    assert one != other
    assert len({one, other, one}) == 2


def test_inputs_of_units():
    below = x("x", "z")
    integral = pc.Integral("z", below, LG())
    assert below.inputs == ()
    assert integral.inputs == (below,)
    assert pc.Product(integral).inputs == (integral,)
    assert pc.Sum((integral,), (1,)).inputs == (integral,)
    assert pc.Product().inputs == ()


def test_an_integral_carries_one_density_or_several_factors():
    one = pc.Integral("z", x("x", "z"), LG({"w": 1.0}))
    assert one.variables == ("z",)
    assert [factor.latents for factor in one.factors] == [("z", "w")]
    factors = [pc.Factor(("z",), LG()), pc.Factor(("w",), LG({"z": 1.0}))]
    assert pc.Integral(["z"], x("x", "z"), factors).factors == tuple(factors)
    assert pc.Integral(("z1", "z2"), x("x", "z1", "z2"), LG()).factors[0].variables == ("z1", "z2")


def test_weights_become_numbers():
    assert pc.Sum([x(), x()], (1, 0)).weights == (1.0, 0.0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5], r"one weight per input \(2\), got 1 weights"),
        ([0.5, 0.6], "weights that add to 1, got a total of 1.1"),
        ([1.5, -0.5], "finite numbers that are not negative"),
        ([math.nan, 1.0], "finite numbers that are not negative"),
        ([math.inf, 0.0], "finite numbers that are not negative"),
    ],
)
def test_wrong_weights(weights, message):
    with pytest.raises(ArgumentError, match=f"weights: expected {message}"):
        pc.Sum([x(), x()], weights)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pc.Sum([], []), "inputs: expected at least one unit"),
        (lambda: pc.Sum([x(), LG()], [0.5, 0.5]), "inputs: expected units .* got LinearGaussian"),
        (lambda: pc.Product([x()]), "inputs: expected units .* got list"),
        (lambda: pc.Integral("z", LG(), LG()), "child: expected units .* got LinearGaussian"),
        (lambda: pc.Integral((), x(), LG()), "variables: expected one latent or several different ones"),
        (lambda: pc.Integral(("z", "z"), x(), LG()), "variables: expected one latent or several different ones"),
        (lambda: pc.Integral("z", x(), 3.0), "function: expected a conditional density"),
        (lambda: pc.Integral("z", x(), "normal"), "functions: expected one density, or a sequence of pc.Factor"),
        (lambda: pc.Integral("z", x(), [LG()]), "functions: expected one density, or a sequence of pc.Factor"),
        (lambda: pc.Input("x", 3.0), "function: expected a conditional density"),
        (lambda: pc.Input("", LG()), "variables: expected different non-empty strings"),
    ],
)
def test_wrong_parts(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
