"""Checked memory of the emulated device."""
