"""The corpus on a GPU: results and times by both compilers."""
