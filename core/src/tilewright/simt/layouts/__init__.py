"""Linear layouts, swizzles of shared memory, and plans made of them: linear algebra over F2 that
knows no operation."""
