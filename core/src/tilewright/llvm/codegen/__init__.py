"""LLVM IR to object code, in this process or another, and its linking."""
