"""``triton.tools.tensor_descriptor``."""

from tilewright.runtime.descriptor import TensorDescriptor

__all__ = ["TensorDescriptor"]
