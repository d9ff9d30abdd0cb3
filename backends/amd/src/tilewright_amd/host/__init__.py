"""The host side: the HIP runtime and its devices."""
