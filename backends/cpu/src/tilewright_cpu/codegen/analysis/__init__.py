"""Analyses of tiles: liveness, strides along each axis, contiguity, masks as bounds."""
