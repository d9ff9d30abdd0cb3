"""``triton.tools.tensor_descriptor``."""

from tilewright.runtime.arguments.descriptor import TensorDescriptor

__all__ = ["TensorDescriptor"]
