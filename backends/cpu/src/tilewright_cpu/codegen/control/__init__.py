"""Regions, loops, branches, functions and calls, and the checks by which a loop that may never end is cancelled."""
