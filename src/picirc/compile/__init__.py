# SPDX-License-Identifier: Apache-2.0
"""The only bridge from symbols to tensors."""
