# SPDX-License-Identifier: Apache-2.0
"""Integral circuits as symbolic graphs, without tensors."""
