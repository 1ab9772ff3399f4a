# SPDX-License-Identifier: Apache-2.0
"""The structure of models: Bayesian networks, latent trees and region graphs, by hand or learned from data."""

from picirc.structure.bayesnet import topological_order
from picirc.structure.information import mutual_information
from picirc.structure.regions import RegionGraph, chain_regions, quad_graph, quad_tree, random_regions
from picirc.structure.trees import (
    LatentTree,
    chain,
    chow_liu,
    hidden_chow_liu,
    maximum_spanning_tree,
    random_tree,
    star,
)

__all__ = [
    "LatentTree",
    "RegionGraph",
    "chain",
    "chain_regions",
    "chow_liu",
    "hidden_chow_liu",
    "maximum_spanning_tree",
    "mutual_information",
    "quad_graph",
    "quad_tree",
    "random_regions",
    "random_tree",
    "star",
    "topological_order",
]
