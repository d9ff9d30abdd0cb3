"""``triton.experimental``: of what is in it, programs import Gluon without asking whether they need it."""
