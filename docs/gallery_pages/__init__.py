"""The gallery: programs of ``examples/gallery`` with their pictures."""
