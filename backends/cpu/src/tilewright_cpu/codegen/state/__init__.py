"""Parts of the lowering state: stack slots, vector partial sums, records of the sanitizer."""
