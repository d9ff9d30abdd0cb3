"""The command line ``tilewright``: installed backends, a kernel's stages, the cache, a check."""
