"""The checked mode: bounds, races, uninitialized memory, overflow, undefined lanes."""
