"""Gauge fixing: references of online softmax loops and rows, which nothing stored depends on."""
