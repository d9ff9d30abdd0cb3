"""Outside tools: the installed driver, ``ptxas`` and ``nvdisasm``, and what they say of a kernel."""
