"""The host's side: the HIP runtime and its devices."""
