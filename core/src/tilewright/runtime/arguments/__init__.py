"""Arguments of launches: array protocols, element types, descriptors, words, checks."""
