"""The executable specification of Tile IR: for each operation a NumPy definition, an interpreter over modules, and its checked mode.

What does not live here: the rules that types keep (``ir``), anything about speed on hardware (the
backends), running kernels by name (``runtime``).
"""
