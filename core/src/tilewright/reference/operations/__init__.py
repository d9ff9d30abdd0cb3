"""The meaning of operations, a file for each family."""
