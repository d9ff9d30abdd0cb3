"""Parts of the state of lowering: stack slots, sums in vector registers, and what the sanitizer keeps of a module and a function."""
