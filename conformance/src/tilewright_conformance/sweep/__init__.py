"""Sweeps of the functions of floats over every magnitude, against values of arbitrary precision. They take minutes: no part of the suite."""
