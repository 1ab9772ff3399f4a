# SPDX-License-Identifier: Apache-2.0
"""A one-minute tour of picirc: ``make demo``.

Each part of the tour is a function that prints its results and may draw into one panel of ``demo.png``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

import digits
import picirc as pc

Errors = Mapping[str, Sequence[float]]

POINTS = (4, 8, 12, 16, 24, 32, 48, 64, 96)
RULES: Mapping[str, Callable[[int], pc.Rule]] = {
    "trapezoidal": pc.trapezoidal,
    "Gauss–Legendre": pc.gauss_legendre,
    "Gauss–Hermite": pc.gauss_hermite,
}
STYLES = {"trapezoidal": ("o", "#0072B2"), "Gauss–Legendre": ("x", "#D55E00"), "Gauss–Hermite": ("+", "#009E73")}


def two_latents() -> pc.BayesNet:
    """Return a network of two latents and two observed variables, one of which depends on both latents."""
    net = pc.BayesNet()
    net.latent("z1", pc.LinearGaussian(bias=0.0, std=1.0))
    net.latent("z2", pc.LinearGaussian({"z1": 0.8}, bias=0.1, std=0.5))
    net.observed("x1", pc.LinearGaussian({"z1": 1.0}, std=0.3))
    net.observed("x2", pc.LinearGaussian({"z1": 0.4, "z2": -1.5}, bias=2.0, std=0.4))
    return net


def quadrature(panel: Axes) -> None:
    """Turn a Bayesian network into a circuit, and evaluate it in closed form and by quadrature."""
    circuit = pc.from_bayesnet(two_latents())
    exact = circuit.exact()
    x = exact.sample(100, torch.Generator().manual_seed(0))
    heading("A Bayesian network with continuous latents as an integral circuit")
    print(circuit)
    heading("Its log-likelihood by static quadrature, against the closed form")
    print("The largest error over 100 data points, and in brackets the circuit's own estimate of it.\n")
    errors: dict[str, list[float]] = {name: [] for name in RULES}
    print("   N" + "".join(f"{name:>22s}" for name in RULES))
    for n in POINTS:
        cells = []
        for name, rule in RULES.items():
            qpc = circuit.integrate(rule(n))
            error, estimate = largest(qpc.log_prob(x) - exact.log_prob(x)), largest(qpc.error(x))
            errors[name].append(error)
            cells.append(f"{error:10.1e} ({estimate:7.1e})")
        print(f"{n:4d}" + "".join(f"{cell:>22s}" for cell in cells))
    other_ways(circuit, exact, x[:5])
    heading("The same as a plot")
    print(ascii_plot(POINTS, errors))
    draw(panel, POINTS, errors)


def other_ways(circuit: pc.Circuit, exact: pc.ExactGaussian, x: torch.Tensor) -> None:
    """Integrate with nested points, at a cost exponential in the depth, and adaptively for each data point."""
    truth = exact.log_prob(x)
    print("\nPoints that move with the integrand (5 data points):\n")
    for n in (8, 32, 96):
        qpc = circuit.integrate(pc.gauss_hermite(n), nested=True)
        size = f"{qpc.size:7,d} weights"
        print(f"  nested Gauss–Hermite, N = {n:2d}  {largest(qpc.log_prob(x) - truth):8.1e}   {size}")
    for tol in (1e-3, 1e-8):
        found = circuit.adaptive_log_prob(x, tol=tol)
        print(
            f"  adaptive, tolerance {tol:5.0e}     {largest(found.value - truth):8.1e}   "
            f"({largest(found.error):.1e}) no circuit, panels halved for each data point"
        )


def largest(values: torch.Tensor) -> float:
    """Return the largest absolute value."""
    return float(values.abs().max())


def ascii_plot(xs: Sequence[int], errors: Errors, width: int = 60) -> str:
    """Draw errors against log N as text, one line per power of ten; ``*`` marks points that coincide."""
    decades = range(2, -16, -1)
    span = math.log(xs[-1] / xs[0])
    columns = [round((width - 1) * math.log(x / xs[0]) / span) for x in xs]
    rows = {decade: [" "] * width for decade in decades}
    for name, ys in errors.items():
        for column, y in zip(columns, ys, strict=True):
            exponent = round(math.log10(max(y, 1e-15)))
            row = rows[min(exponent, 2)]
            row[column] = STYLES[name][0] if row[column] == " " else "*"
    axis = [" "] * (width + 2)
    for x, column in zip(xs, columns, strict=True):
        axis[column : column + len(str(x))] = str(x)
    lines = [f"  1e{decade:+03d} │{''.join(row).rstrip()}" for decade, row in rows.items()]
    legend = "   ".join(f"{STYLES[name][0]} {name}" for name in errors)
    return "\n".join([*lines, "        └" + "─" * width, f"  N =    {''.join(axis).rstrip()}", f"\n  {legend}"])


def draw(panel: Axes, xs: Sequence[int], errors: Errors) -> None:
    """Draw the same plot into the picture."""
    for name, ys in errors.items():
        marker, colour = STYLES[name]
        panel.plot(xs, ys, marker=marker, color=colour, label=name)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(xs, [str(x) for x in xs])
    panel.set_xlabel("number of points N for each latent")
    panel.set_ylabel("largest error of the log-likelihood")
    panel.set_title("Static quadrature of a network with two latents", fontsize=10)
    panel.grid(color="#dddddd", linewidth=0.6)
    panel.legend(frameon=False)


def heading(text: str) -> None:
    """Print an underlined heading."""
    print(f"\n{text}\n{'─' * len(text)}")


PARTS = (quadrature,)


def main() -> None:
    """Run all parts and save the picture."""
    figure, panels = plt.subplots(
        1, len(PARTS), figsize=(6 * len(PARTS), 4), dpi=150, layout="constrained", squeeze=False
    )
    for part, panel in zip(PARTS, panels[0], strict=True):
        part(panel)
    picture = Path("demo.png").resolve()
    figure.savefig(picture)
    print(f"\nSaved the plot: {picture}")
    digits.main()
    heading("Query the model in the browser")
    print(f"{Path(sys.executable).parent / 'picirc'} explore {digits.MODEL.resolve()} --data digits")


if __name__ == "__main__":
    main()
