# SPDX-License-Identifier: Apache-2.0
"""The distribution that a compiled circuit represents, and its queries."""
