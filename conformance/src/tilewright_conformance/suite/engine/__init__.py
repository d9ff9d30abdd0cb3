"""Running cases: what an outcome is judged to be, the worker processes, the pool that feeds them, and the journal that a run resumes from.

What does not live here: what the cases demand (``session``, ``cases``), and what is made of the
outcomes (``report``).
"""
