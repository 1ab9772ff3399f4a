# SPDX-License-Identifier: Apache-2.0
"""The tensor program: it knows nothing of symbols."""
