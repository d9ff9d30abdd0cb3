"""What is made of a run: the report document with its schema, checksum and signature, and the views of it (JUnit, HTML, badge, comparison, scoreboard).

Every view is a function of documents alone, so that anyone who has a report can make it.
"""
