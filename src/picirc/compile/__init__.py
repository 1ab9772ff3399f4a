"""The only bridge from symbols to tensors."""
