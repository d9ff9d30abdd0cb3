"""Files: the disk cache, its keys and entries, and the checks that keep others from writing them."""
