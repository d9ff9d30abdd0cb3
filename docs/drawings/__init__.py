"""Drawings of the site, made from the layouts that the compiler prints."""
