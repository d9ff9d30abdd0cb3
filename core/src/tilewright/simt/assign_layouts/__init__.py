"""The assignment of layouts: rules of operations, a problem with costs, its solution, and the
conversions where layouts meet."""
