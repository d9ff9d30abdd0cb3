"""Augmented kernels as kernels that derivatives are taken of in turn: their selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.runtime.arguments.array_protocols import ArrayKind
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.compiler.specialize import DescriptorKind

if TYPE_CHECKING:
    from tilewright.runtime.derivatives.augmented_kernel import AugmentedKernel
    from tilewright.runtime.devices.backend_choice import Choice

#: Stands for the grid, on which the kernel does not depend.
_GRID = (1, 1, 1)


class AugmentedPolicy:
    """Selects the augmented kernel of a launch, as a kernel's launch policy selects the kernel."""

    def __init__(self, kernel: AugmentedKernel) -> None:
        self._kernel = kernel

    def select(
        self,
        kernel: AugmentedKernel,
        args: tuple[Any, ...],
        kinds: tuple[Any, ...],
        options: Mapping[str, Any],
        choice: Choice | None,
    ) -> Selected:
        """Return the selection of the kernel, which takes its own arrays after the arguments.

        Its specialization prepares the module of the base kernel.
        """
        base = kernel.base_kernel
        count = len(base.arg_names)
        inner = base.policy.select(base, args[:count], kinds[:count], options, choice)
        kernel.refuse_exact_mode(inner)
        own = dict(zip(kernel.arg_names[count:], args[count:], strict=True))
        own_kinds = kinds[count:]
        launch = kernel.launch_of(args[:count], kinds[:count], own, own_kinds, _GRID, inner)
        selected = kernel.selection_of(launch, keep_calls=True)
        signature = replace(
            inner.signature,
            types=dict(inner.signature.types),
            attributes=dict(inner.signature.attributes),
            devices=dict(inner.signature.devices),
            stand_ins=list(inner.signature.stand_ins),
            converters=list(inner.signature.converters),
        )
        # forward mode adds the parameters of arrays before those of numbers
        for place in sorted(range(len(own)), key=lambda place: _is_number(own_kinds[place])):
            name = kernel.arg_names[count + place]
            signature.add(count + place, name, own_kinds[place], own[name])
        return selected._replace(signature=signature, kinds=kinds)

    def key(self, selected: Selected) -> Any:
        """Return what distinguishes the base kernels of selections."""
        return self._kernel.base_kernel.policy.key(selected)


def _is_number(kind: Any) -> bool:
    return not isinstance(kind, ArrayKind | DescriptorKind)
