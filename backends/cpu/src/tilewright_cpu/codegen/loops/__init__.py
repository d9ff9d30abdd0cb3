"""Loop nests over tiles: evaluation of a vector strip, inner and outer loops, tiles put into memory, and reductions to a flag."""
