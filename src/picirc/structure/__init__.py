# SPDX-License-Identifier: Apache-2.0
"""The structure of models: Bayesian networks, latent trees and region graphs, by hand or learned from data."""

from picirc.structure.regions import RegionGraph, quad_graph, quad_tree, random_regions
from picirc.structure.trees import LatentTree, chain, hidden_chow_liu, random_tree

__all__ = [
    "LatentTree",
    "RegionGraph",
    "chain",
    "hidden_chow_liu",
    "quad_graph",
    "quad_tree",
    "random_regions",
    "random_tree",
]
