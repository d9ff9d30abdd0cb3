"""Values of kernels and their types: tensors, tuples, constants, dtypes, promotion."""
