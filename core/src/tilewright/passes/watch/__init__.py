"""Instrumentation that records the range and the NaN of a kernel's values while it runs."""
