"""Analyses of a kernel that both modes ask: activity, addresses, finiteness, and writes."""
