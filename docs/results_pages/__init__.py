"""Pages of measured results, from the files that benchmarks write."""
