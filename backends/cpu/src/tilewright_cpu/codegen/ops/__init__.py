"""The lowering of each operation that is not evaluated lazily, a file a family."""
