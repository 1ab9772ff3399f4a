"""Sequences: homogeneous chains with continuous latents, known or learned."""

from __future__ import annotations

from picirc.sequences.fit import Settings, fit_sequences
from picirc.sequences.model import Forecast, OnlineFilter, SequenceModel, StatePosterior, state_space

__all__ = ["Forecast", "OnlineFilter", "SequenceModel", "Settings", "StatePosterior", "fit_sequences", "state_space"]
