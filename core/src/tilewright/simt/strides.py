"""How far addresses move from one iteration of a loop to the next: whether iterations access different memory."""

from __future__ import annotations

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import shape_of
from tilewright.passes.affine import Affine, is_inside
from tilewright.passes.affine_forms import Wrapped


class TiledAffine(Affine):
    """Affine analysis of a function whose tiles have layouts."""

    def advances(self, pointer: Value, loop: Operation) -> bool:
        """Whether no two iterations of a ``for`` have an address in common among those of ``pointer``, a tile made in its body.

        Index arithmetic is taken not to overflow.
        """
        form = self.form(pointer) if loop.name == "for" else None
        if form is None or (form.base is not None and is_inside(form.base, loop)):
            return False
        iteration = self.unknown("iteration", loop)
        step = dict(form.start.terms).get(iteration.terms[0][0], 0)
        if self.varies(form.start.plus(iteration, -step), loop):
            return False
        spread = 0
        for key, along in form.steps:
            factor = along.constant
            if isinstance(key, Wrapped) or factor is None:
                return False
            spread += abs(factor) * (shape_of(pointer.type)[key] - 1)
        return abs(step) > spread
