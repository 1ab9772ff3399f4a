# SPDX-License-Identifier: Apache-2.0
"""The tensor program: a schedule of steps, and the compiled circuit that runs it up and down."""
