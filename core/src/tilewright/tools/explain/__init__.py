"""``tilewright explain`` and ``tilewright.explain``: a kernel's compilation as one HTML page.

Here are the places that lines of stages come from, the layouts as pictures need them, the findings
of each line of the source, and the page. How a kernel is compiled, and what is decided about it, is
elsewhere: nothing here computes anything that a stage or a hook does not say.
"""
