"""Launches of derivatives: ``tw.jvp`` and ``tw.vjp``, their arguments, and their memory."""
