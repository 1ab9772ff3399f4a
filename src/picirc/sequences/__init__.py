# SPDX-License-Identifier: Apache-2.0
"""Sequences: homogeneous chains with continuous latents, known or learned."""

from __future__ import annotations

from picirc.sequences.fit import Settings, fit_sequences
from picirc.sequences.model import Forecast, OnlineFilter, SequenceModel, StatePosterior, state_space
from picirc.sequences.page import write_sequence_report

__all__ = [
    "Forecast",
    "OnlineFilter",
    "SequenceModel",
    "Settings",
    "StatePosterior",
    "fit_sequences",
    "state_space",
    "write_sequence_report",
]
