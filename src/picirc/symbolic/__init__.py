"""Integral circuits as symbolic graphs, without tensors."""
