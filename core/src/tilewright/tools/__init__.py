"""The command line ``tilewright``: what is installed, what a kernel compiles to, the cache, and a check of the installation."""
