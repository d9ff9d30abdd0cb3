"""Source of the language for modules of Tile IR: the way back from the IR to a kernel's text.

:func:`~.module_source.source_of_module` writes a module as Python source that the frontend compiles
to the same code, to read, keep and edit. Each operation has a row that writes it
(:mod:`.source_rows`); :mod:`.function_writer` decides what stands on a line of its own and what is
written within an expression, and :mod:`.operand_forms` leaves out splats, broadcasts and casts that
the language implies.

What does not live here: choices of what is printed. Any module is, whoever made it.
"""
