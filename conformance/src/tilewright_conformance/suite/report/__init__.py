"""Reports of a run: the document with schema, checksum and signature, and its views.

The views are JUnit, HTML, badge, comparison and scoreboard. Each is a function of documents alone,
so that anyone who has a report can make it.
"""
