"""OpenCL on processors as a backend: kernels become OpenCL C, a work-item runs whole programs."""

__version__ = "0.1.0"
