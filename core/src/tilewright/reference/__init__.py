"""The executable specification of Tile IR: operations in NumPy, an interpreter, and checks.

What does not live here: the rules that types keep (``ir``), anything about speed on hardware (the
backends), running kernels by name (``runtime``).
"""
