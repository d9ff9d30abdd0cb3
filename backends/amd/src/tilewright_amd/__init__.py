"""The amd backend of Tilewright: AMD GPUs through AMDGPU code.

This release registers the backend and its targets; it finds no devices and lowers nothing, and says so.
"""
