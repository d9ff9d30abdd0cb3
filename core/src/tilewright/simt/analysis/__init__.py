"""Analyses: questions about a kernel that passes ask. Nothing here changes the kernel."""
