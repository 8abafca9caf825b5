"""Pure functions of tensors; randomness comes in as a generator."""
