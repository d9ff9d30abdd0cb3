"""Warp specialization: the producer and the consumer partition of a function, and their loops."""
