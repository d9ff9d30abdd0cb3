"""The kinds of completion of copies, with one file for each.

Each file here is imported with the package, and registers its
:class:`~tilewright.simt.pipeline.modulo_expander.Copies` under the name that
:attr:`~tilewright.simt.target.copy_mechanism.CopyMechanism.completes` has. Selection, scheduling
and expansion of loops look it up there, and name no kind.
"""

from tilewright.passes.package_modules import import_modules

import_modules(__name__)
