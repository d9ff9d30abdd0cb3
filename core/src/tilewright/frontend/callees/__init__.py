"""Functions that a module has beside its kernel."""
