"""The interface of a GPU target, and its copy mechanisms, matmul plans and cost model."""
