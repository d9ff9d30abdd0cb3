"""The samples of :mod:`tilewright.testing.op_samples`, one file a family of operations: ``SAMPLES`` maps operations to functions that give samples."""
