"""The mock HIP runtime, through which unmodified host code launches on emulated waves."""
