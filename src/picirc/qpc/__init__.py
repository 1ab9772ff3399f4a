"""The tensor program: it knows nothing of symbols."""
