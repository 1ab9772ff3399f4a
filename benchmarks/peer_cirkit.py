# SPDX-License-Identifier: Apache-2.0
"""The same circuit in cirkit and in picirc: cirkit builds it and picirc takes its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from cirkit.backend.torch.queries import SamplingQuery
from cirkit.pipeline import PipelineContext
from cirkit.symbolic.circuit import Circuit
from cirkit.symbolic.initializers import ConstantTensorInitializer
from cirkit.symbolic.layers import CategoricalLayer, HadamardLayer, Layer, SumLayer
from cirkit.symbolic.parameters import Parameter, SoftmaxParameter, TensorParameter, mixing_weight_factory
from cirkit.templates.region_graph import QuadGraph, RegionGraph
from cirkit.templates.region_graph.algorithms.utils import tree2rg
from torch import Tensor

import picirc as pc
from pair import Pair
from places import Places

Scope = tuple[int, ...]


def quad_graph(height: int, width: int) -> RegionGraph:
    """Cirkit's quad graph of an image."""
    return QuadGraph((1, height, width))


def chow_liu(tree: pc.LatentTree) -> RegionGraph:
    """Cirkit's region graph of a tree over the variables."""
    return tree2rg(np.array(tree.parents))


def pair(graph: RegionGraph, states: int, categories: int, seed: int = 0) -> Pair:
    """The CP circuit of a region graph with categorical inputs, twice."""
    circuit = _circuit(graph, states, categories, seed)
    with PipelineContext(backend="torch", semiring="lse-sum", fold=True, optimize=True) as context:
        theirs = context.compile(circuit)
    regions = as_regions(graph)
    ours = pc.HCLT(regions, pc.Categorical(categories), states, product="cp")
    _load(ours, regions, circuit)

    def log_prob(x: Tensor) -> Tensor:
        values: Tensor = theirs(x.long())  # (batch, outputs, classes), one of each
        return values[:, 0, 0]

    def sample(n: int) -> Tensor:
        drawn: Tensor = SamplingQuery(theirs)(n)[0]
        return drawn

    return Pair(ours, theirs, log_prob, sample)


def as_regions(graph: RegionGraph) -> pc.RegionGraph:
    """A region graph of cirkit as one of picirc."""
    nodes = sorted(graph.region_nodes, key=lambda node: (len(node.scope), _scope(node.scope)))
    number = {node: region for region, node in enumerate(nodes)}
    partitions = tuple(
        tuple(tuple(number[part] for part in graph.partition_inputs(way)) for way in graph.region_inputs(node))
        for node in nodes
    )
    return pc.RegionGraph(tuple(_scope(node.scope) for node in nodes), partitions)


def _circuit(graph: RegionGraph, states: int, categories: int, seed: int) -> Circuit:
    """The symbolic circuit, each parameter with random numbers that can be read off again."""
    rng = np.random.default_rng(seed)

    def table(shape: tuple[int, ...]) -> Parameter:
        numbers = ConstantTensorInitializer(rng.normal(size=shape).astype(np.float32))
        return Parameter.from_unary(SoftmaxParameter(shape), TensorParameter(*shape, initializer=numbers))

    return graph.build_circuit(
        input_factory=partial(CategoricalLayer, num_categories=categories, probs_factory=table),
        sum_product="cp",
        sum_weight_factory=table,
        nary_sum_weight_factory=partial(mixing_weight_factory, param_factory=table),
        num_input_units=states,
        num_sum_units=states,
    )


def _load(model: pc.HCLT, regions: pc.RegionGraph, circuit: Circuit) -> None:
    """Give a model the numbers of cirkit's circuit."""
    places = Places(model)
    number = {scope: region for region, scope in enumerate(regions.scopes)}

    def region(layer: Layer) -> int:
        return number[_scope(circuit.layer_scope(layer))]

    for layer in circuit.layers:
        if isinstance(layer, CategoricalLayer):
            (variable,) = layer.scope
            places.fill(places.inputs[variable], _probabilities(layer.probs))
        elif isinstance(layer, HadamardLayer):
            for dense in circuit.layer_inputs(layer):
                places.fill(places.weights[region(dense), region(layer)], _probabilities(dense.weight))
        elif len(circuit.layer_inputs(layer)) > 1 and region(layer) != regions.root:
            order = _order(regions, region(layer), _ways(circuit, layer, number))
            places.fill(places.mixtures[region(layer)], _probabilities(layer.weight)[:, order])
    _load_root(places, regions, circuit, number)


def _load_root(places: Places, regions: pc.RegionGraph, circuit: Circuit, number: dict[Scope, int]) -> None:
    """Cirkit sums each partition of the root by itself and then mixes them, m_p · w_pk; here the states come last.

    The same mixture is w_k · m_pk with w_k = Σ_p m_p · w_pk and m_pk = m_p · w_pk / w_k.
    """
    root = regions.root
    (top,) = circuit.outputs
    if len(regions.partitions[root]) == 1:
        places.fill(places.weights[root, None], _probabilities(top.weight))
        return
    denses = circuit.layer_inputs(top)
    joint = torch.cat([_probabilities(dense.weight) for dense in denses]) * _probabilities(top.weight).T  # (p, k)
    order = _order(regions, root, _ways(circuit, top, number))
    states = joint.sum(0, keepdim=True)
    places.fill(places.weights[root, None], states)
    places.fill(places.mixtures[root], (joint / states)[order].T)


def _ways(circuit: Circuit, layer: SumLayer, number: dict[Scope, int]) -> Iterator[frozenset[int]]:
    """The partitions that a sum layer mixes, each as the set of its regions."""
    for part in circuit.layer_inputs(layer):
        (product,) = circuit.layer_inputs(part) if isinstance(part, SumLayer) else (part,)
        yield frozenset(number[_scope(circuit.layer_scope(dense))] for dense in circuit.layer_inputs(product))


def _order(regions: pc.RegionGraph, region: int, ways: Iterator[frozenset[int]]) -> list[int]:
    """For each of our partitions its position among cirkit's."""
    theirs = list(ways)
    return [theirs.index(frozenset(partition)) for partition in regions.partitions[region]]


def _probabilities(parameter: Parameter) -> Tensor:
    (tensor,) = (node for node in parameter.nodes if isinstance(node, TensorParameter))
    assert isinstance(tensor.initializer, ConstantTensorInitializer)
    return torch.as_tensor(tensor.initializer.value, dtype=torch.float64).softmax(-1)


def _scope(scope: object) -> Scope:
    return tuple(sorted(scope))  # type: ignore[call-overload]
