"""The corpus executed for AMD GPUs in the emulator: results and instructions beside those of
Triton's code.
"""
