"""Reference pages made from docstrings, the table of names and the probes.

Used by the site's hook (``docs/generate.py``) and by the tests of the site.
"""
