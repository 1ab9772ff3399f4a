# SPDX-License-Identifier: Apache-2.0
"""From symbolic circuits to tensors: planning, placing grids, and integrating."""
