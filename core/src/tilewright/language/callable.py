"""A function written in the language: its source, syntax tree, parameters and the key of everything its meaning depends on."""

from __future__ import annotations
