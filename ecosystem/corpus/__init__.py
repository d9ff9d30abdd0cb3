"""The corpus: kernels that people serve and train with, and what Tilewright and Triton make of
them.

``launches/PACKAGE.json`` says which kernels a package launches and with what arguments: names,
types, shapes and options, no source. The sources are the package's own, installed from the package
index.
"""
