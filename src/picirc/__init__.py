# SPDX-License-Identifier: Apache-2.0
"""Probabilistic integral circuits: continuous latent variables with exact, fast queries.

Names are imported when they are first used, so that ``import picirc`` and the command line answer at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from picirc import data as data
    from picirc import io as io
    from picirc import plot as plot
    from picirc import sequences as sequences
    from picirc import tables as tables
    from picirc.circuit import Circuit as Circuit
    from picirc.circuit import from_bayesnet as from_bayesnet
    from picirc.circuit import from_tree as from_tree
    from picirc.clusters import Clusters as Clusters
    from picirc.errors import ArgumentError as ArgumentError
    from picirc.errors import ImpossibleEvidenceError as ImpossibleEvidenceError
    from picirc.errors import IntractableError as IntractableError
    from picirc.errors import SizeError as SizeError
    from picirc.errors import StructureError as StructureError
    from picirc.estimators import ConditionalDensity as ConditionalDensity
    from picirc.estimators import PICClassifier as PICClassifier
    from picirc.estimators import PICDensity as PICDensity
    from picirc.estimators import PICImputer as PICImputer
    from picirc.estimators import PICSequences as PICSequences
    from picirc.exact import ExactGaussian as ExactGaussian
    from picirc.explorer import Explorer as Explorer
    from picirc.explorer import explore as explore
    from picirc.functions import Conditional as Conditional
    from picirc.functions import Density as Density
    from picirc.functions import Discrete as Discrete
    from picirc.functions import LinearGaussian as LinearGaussian
    from picirc.functions import MultivariateNormal as MultivariateNormal
    from picirc.hclt import HCLT as HCLT
    from picirc.inputs import Bernoulli as Bernoulli
    from picirc.inputs import Binomial as Binomial
    from picirc.inputs import Categorical as Categorical
    from picirc.inputs import Family as Family
    from picirc.inputs import Gaussian as Gaussian
    from picirc.inputs import Laplace as Laplace
    from picirc.inputs import Poisson as Poisson
    from picirc.inputs import StudentT as StudentT
    from picirc.io import load as load
    from picirc.io import save as save
    from picirc.learning import CollapseWarning as CollapseWarning
    from picirc.learning import Cosine as Cosine
    from picirc.learning import History as History
    from picirc.learning import Progress as Progress
    from picirc.learning import bits_per_dimension as bits_per_dimension
    from picirc.learning import fit as fit
    from picirc.learning import fit_em as fit_em
    from picirc.learning import json_lines as json_lines
    from picirc.learning import mean_log_prob as mean_log_prob
    from picirc.learning import tensorboard as tensorboard
    from picirc.mixture import TreeMixture as TreeMixture
    from picirc.model import Model as Model
    from picirc.pic import PIC as PIC
    from picirc.pic import Ensemble as Ensemble
    from picirc.qpc.distribution import QPC as QPC
    from picirc.qpc.divergences import cauchy_schwarz_divergence as cauchy_schwarz_divergence
    from picirc.qpc.divergences import l2_divergence as l2_divergence
    from picirc.qpc.divergences import log_inner_product as log_inner_product
    from picirc.qpc.marginals import LatentPosterior as LatentPosterior
    from picirc.qpc.marginals import Marginals as Marginals
    from picirc.quadrature import Grid as Grid
    from picirc.quadrature import RandomRule as RandomRule
    from picirc.quadrature import Rule as Rule
    from picirc.quadrature import VectorRule as VectorRule
    from picirc.quadrature import clenshaw_curtis as clenshaw_curtis
    from picirc.quadrature import gauss_hermite as gauss_hermite
    from picirc.quadrature import gauss_legendre as gauss_legendre
    from picirc.quadrature import midpoint as midpoint
    from picirc.quadrature import shifted as shifted
    from picirc.quadrature import simpson as simpson
    from picirc.quadrature import sobol as sobol
    from picirc.quadrature import tensor_grid as tensor_grid
    from picirc.quadrature import trapezoidal as trapezoidal
    from picirc.quadrature import whole_line as whole_line
    from picirc.report import write_report as write_report
    from picirc.sequences import Forecast as Forecast
    from picirc.sequences import SequenceModel as SequenceModel
    from picirc.sequences import fit_sequences as fit_sequences
    from picirc.sequences import state_space as state_space
    from picirc.sequences import write_sequence_report as write_sequence_report
    from picirc.structure.bayesnet import BayesNet as BayesNet
    from picirc.structure.regions import RegionGraph as RegionGraph
    from picirc.structure.regions import quad_graph as quad_graph
    from picirc.structure.regions import quad_tree as quad_tree
    from picirc.structure.regions import random_regions as random_regions
    from picirc.structure.trees import LatentTree as LatentTree
    from picirc.structure.trees import chain as chain
    from picirc.structure.trees import hidden_chow_liu as hidden_chow_liu
    from picirc.structure.trees import random_tree as random_tree
    from picirc.structure.trees import star as star
    from picirc.symbolic.circuit import Cost as Cost
    from picirc.symbolic.circuit import Properties as Properties
    from picirc.symbolic.units import Factor as Factor
    from picirc.symbolic.units import Input as Input
    from picirc.symbolic.units import Integral as Integral
    from picirc.symbolic.units import Product as Product
    from picirc.symbolic.units import Sum as Sum
    from picirc.tables import Schema as Schema
    from picirc.tables import TableModel as TableModel
    from picirc.tables import between as between
    from picirc.tables import fit_table as fit_table
    from picirc.tables import mapper as mapper
    from picirc.tables import missing as missing
    from picirc.tables import observed as observed
    from picirc.tables import one_of as one_of

__version__ = "0.1.0"

# Where each public name lives; the same as above, for the running program.
_HOMES = {
    "circuit": ("Circuit", "from_bayesnet", "from_tree"),
    "clusters": ("Clusters",),
    "errors": ("ArgumentError", "ImpossibleEvidenceError", "IntractableError", "SizeError", "StructureError"),
    "estimators": ("ConditionalDensity", "PICClassifier", "PICDensity", "PICImputer", "PICSequences"),
    "exact": ("ExactGaussian",),
    "explorer": ("Explorer", "explore"),
    "functions": ("Conditional", "Density", "Discrete", "LinearGaussian", "MultivariateNormal"),
    "inputs": ("Bernoulli", "Binomial", "Categorical", "Family", "Gaussian", "Laplace", "Poisson", "StudentT"),
    "io": ("load", "save"),
    "learning": (
        *("CollapseWarning", "Cosine", "History", "Progress", "bits_per_dimension", "fit", "fit_em", "json_lines"),
        *("mean_log_prob", "tensorboard"),
    ),
    "hclt": ("HCLT",),
    "mixture": ("TreeMixture",),
    "model": ("Model",),
    "pic": ("PIC", "Ensemble"),
    "qpc.distribution": ("QPC",),
    "qpc.divergences": ("cauchy_schwarz_divergence", "l2_divergence", "log_inner_product"),
    "qpc.marginals": ("LatentPosterior", "Marginals"),
    "quadrature": (
        *("Grid", "RandomRule", "Rule", "VectorRule", "clenshaw_curtis", "gauss_hermite", "gauss_legendre"),
        *("midpoint", "shifted", "simpson", "sobol", "tensor_grid", "trapezoidal", "whole_line"),
    ),
    "report": ("write_report",),
    "sequences": ("Forecast", "SequenceModel", "fit_sequences", "state_space", "write_sequence_report"),
    "structure.bayesnet": ("BayesNet",),
    "structure.regions": ("RegionGraph", "quad_graph", "quad_tree", "random_regions"),
    "structure.trees": ("LatentTree", "chain", "hidden_chow_liu", "random_tree", "star"),
    "symbolic.circuit": ("Cost", "Properties"),
    "symbolic.units": ("Factor", "Input", "Integral", "Product", "Sum"),
    "tables": ("Schema", "TableModel", "between", "fit_table", "mapper", "missing", "observed", "one_of"),
}
_MODULES = ("data", "io", "plot", "sequences", "tables")
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
