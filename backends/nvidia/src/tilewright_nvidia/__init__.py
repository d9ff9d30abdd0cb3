"""The nvidia backend of Tilewright: NVIDIA GPUs through PTX.

This release registers the backend and its targets; it finds no devices and lowers nothing, and says so.
"""
