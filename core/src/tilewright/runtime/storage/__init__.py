"""Storage: the disk cache, its keys and entries, and checks that only the user can write them."""
