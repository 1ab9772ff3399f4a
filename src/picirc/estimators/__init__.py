"""Estimators for scikit-learn: densities, imputation and classification of mixed tables with missing cells."""

from __future__ import annotations

from picirc.estimators.classifier import PICClassifier
from picirc.estimators.density import ConditionalDensity, PICDensity
from picirc.estimators.imputer import PICImputer

__all__ = ["ConditionalDensity", "PICClassifier", "PICDensity", "PICImputer"]
