"""Memory of a launch: the ranges that arguments name, and typed accesses within them."""
