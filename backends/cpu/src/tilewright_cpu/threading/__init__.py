"""The thread pool: native workers and OpenMP, work distribution between threads, and the decision whether a launch is worth sharing."""
