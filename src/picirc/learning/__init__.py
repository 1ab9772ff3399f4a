# SPDX-License-Identifier: Apache-2.0
"""Training: by gradient, and by expectation-maximisation."""

from picirc.learning.em import em_step, fit_em
from picirc.learning.gradient import fit
from picirc.learning.history import History, Progress, bits_per_dimension, json_lines, tensorboard
from picirc.learning.loop import CollapseWarning, Cosine, mean_log_prob

__all__ = [
    "CollapseWarning",
    "Cosine",
    "History",
    "Progress",
    "bits_per_dimension",
    "em_step",
    "fit",
    "fit_em",
    "json_lines",
    "mean_log_prob",
    "tensorboard",
]
