"""Tensor memory accesses: which loads and stores become bulk copies by tensor maps, and how these
copies are started and awaited outside pipelined loops."""
