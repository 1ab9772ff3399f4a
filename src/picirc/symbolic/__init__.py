"""The language of integral circuits, free of tensors."""
