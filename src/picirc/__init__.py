"""Probabilistic integral circuits: continuous latent variables with exact, fast queries."""

from picirc.circuit import Circuit, from_bayesnet, from_tree
from picirc.errors import (
    ArgumentError,
    ImpossibleEvidenceError,
    IntractableError,
    SizeError,
    StructureError,
)
from picirc.exact import ExactGaussian
from picirc.functions import Conditional, Density, LinearGaussian
from picirc.inputs import (
    Bernoulli,
    Binomial,
    Categorical,
    Family,
    Gaussian,
    Laplace,
    Poisson,
    StudentT,
)
from picirc.learning import Cosine, History, bits_per_dimension, fit, fit_em, json_lines, mean_log_prob, tensorboard
from picirc.pic import HCLT, PIC
from picirc.qpc.distribution import QPC
from picirc.qpc.latents import LatentPosterior
from picirc.qpc.products import cauchy_schwarz_divergence, inner_product, l2_divergence
from picirc.qpc.queries import Marginals
from picirc.quadrature import (
    Grid,
    RandomRule,
    Rule,
    clenshaw_curtis,
    gauss_hermite,
    gauss_legendre,
    midpoint,
    shifted,
    simpson,
    trapezoidal,
)
from picirc.structure.bayesnet import BayesNet
from picirc.structure.chow_liu import hidden_chow_liu
from picirc.structure.regions import RegionGraph, quad_graph, quad_tree, random_regions
from picirc.structure.trees import LatentTree, chain, random_tree
from picirc.symbolic.circuit import Cost, Properties
from picirc.symbolic.units import Factor, Input, Integral, Product, Sum

__version__ = "0.1.0"

__all__ = [
    "HCLT",
    "PIC",
    "QPC",
    "ArgumentError",
    "BayesNet",
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Circuit",
    "Conditional",
    "Cosine",
    "Cost",
    "Density",
    "ExactGaussian",
    "Factor",
    "Family",
    "Gaussian",
    "Grid",
    "History",
    "ImpossibleEvidenceError",
    "Input",
    "Integral",
    "IntractableError",
    "Laplace",
    "LatentPosterior",
    "LatentTree",
    "LinearGaussian",
    "Marginals",
    "Poisson",
    "Product",
    "Properties",
    "RandomRule",
    "RegionGraph",
    "Rule",
    "SizeError",
    "StructureError",
    "StudentT",
    "Sum",
    "bits_per_dimension",
    "cauchy_schwarz_divergence",
    "chain",
    "clenshaw_curtis",
    "fit",
    "fit_em",
    "from_bayesnet",
    "from_tree",
    "gauss_hermite",
    "gauss_legendre",
    "hidden_chow_liu",
    "inner_product",
    "json_lines",
    "l2_divergence",
    "mean_log_prob",
    "midpoint",
    "quad_graph",
    "quad_tree",
    "random_regions",
    "random_tree",
    "shifted",
    "simpson",
    "tensorboard",
    "trapezoidal",
]
