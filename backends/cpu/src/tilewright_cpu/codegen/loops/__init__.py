"""Loop nests over tiles: vector strips, inner loops, materialization, lane reductions."""
