"""Running cases: judging outcomes, the worker processes and their pool, and the journal.

A run resumes from its journal. The demands of cases are elsewhere (``session``, ``cases``), and so
is the use of outcomes (``report``).
"""
