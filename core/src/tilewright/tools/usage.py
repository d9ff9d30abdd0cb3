"""The error of a wrong command line.

It has a module of its own: ``python -m tilewright.tools.cli`` runs ``cli`` under another name.
"""

from tilewright.errors import TilewrightError


class UsageError(TilewrightError):
    """The command line asks for something that is not there."""
