"""What the two traversals leave behind."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from picirc.qpc.workspace import Lease


@dataclass
class Trace:
    """What ``up`` leaves behind for ``down``.

    Attributes:
        rows: For each pool ``(rows, states, batch)``.
        scales: For each pool ``(rows, batch)``: the logarithm that the rows were divided by. In a simple schedule each
            row has its own part only, otherwise also those of all rows below.
        sums: For each sum step, by its number, the results before the logarithm, as a flat buffer.
        lease: The buffers that hold them.
    """

    rows: list[Tensor]
    scales: list[Tensor]
    lease: Lease
    sums: dict[int, Tensor] = field(default_factory=dict)


@dataclass
class Flows:
    """What ``down`` computes.

    Attributes:
        rows: For each pool the flow of every row, ``(rows, states, batch)``.
        weights: For each block the derivative with respect to the sum weights, summed over the batch.
        mixtures: The same for the mixing weights.
    """

    rows: list[Tensor]
    weights: list[Tensor]
    mixtures: list[Tensor]
