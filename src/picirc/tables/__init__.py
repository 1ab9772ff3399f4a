# SPDX-License-Identifier: Apache-2.0
"""Models of tables: what the columns are, how a model is fitted to them, and its answers in their own units."""

from __future__ import annotations

from picirc.tables.column import Column
from picirc.tables.defaults import Defaults, choose
from picirc.tables.evidence import Between, OneOf, Presence, between, missing, observed, one_of
from picirc.tables.fitting import fit_table
from picirc.tables.mapping import Mapper, mapper
from picirc.tables.model import TableModel
from picirc.tables.schema import Schema

__all__ = [
    "Between", "Column", "Defaults", "Mapper", "OneOf", "Presence", "Schema", "TableModel", "between", "choose",
    "fit_table", "mapper", "missing", "observed", "one_of",
]  # fmt: skip
