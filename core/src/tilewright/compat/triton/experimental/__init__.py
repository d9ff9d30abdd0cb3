"""``triton.experimental``: Gluon, which programs import without asking whether they need it."""
