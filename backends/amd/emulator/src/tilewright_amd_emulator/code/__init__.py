"""Code objects and assembly text as programs of parsed instructions."""
