"""Search for the step of a compilation that changes a kernel's results."""
