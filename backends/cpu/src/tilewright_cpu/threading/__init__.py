"""The thread pool: native workers, OpenMP, work distribution, and the launch decision."""
