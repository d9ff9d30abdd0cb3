"""The cases of the suite: a folder for each profile, and in it a module or package a family.

Each has ``cases() -> Iterator[Case]``. The ids of a family's cases begin with its name:
``cases/math/math`` has ``math/exp/f32/special``. A family is in the folder of its main profile;
some of its cases can be of another (those of fp8 types are of profile fp8). Making the cases must
be cheap: each worker process makes those of the families it runs. Slow work (random data, expected
values) belongs in a case's ``run``.

Helpers of one family are in its package, those of several in ``tilewright_conformance.testlib``.
"""
