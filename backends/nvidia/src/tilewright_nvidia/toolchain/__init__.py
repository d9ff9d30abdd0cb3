"""Outside tools: the installed driver, ``ptxas`` and ``nvdisasm``, and parsers of their output."""
