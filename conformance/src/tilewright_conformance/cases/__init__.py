"""The cases of the suite: a module (or a package of modules) for each family, with ``cases() -> Iterator[Case]``.

The ids of a module's cases begin with its name: ``cases/math.py`` gives ``math/exp/f32/special``. Making the cases must be cheap: each worker process makes
those of the families it runs. What is slow (random data, expected values) belongs in a case's ``run``.

What does not live here: helpers that are no family. Those of one family are in its package, those of several in ``tilewright_conformance.kit``.
"""
