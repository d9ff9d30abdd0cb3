"""Running kernels of Tile IR on this machine, and comparing them with the reference."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from qemu_runner import bits_of

from tilewright.ir import Module
from tilewright.ir.types import DescriptorType, PointerType
from tilewright.plugins.manifest import Target
from tilewright.reference import interpreter
from tilewright_conformance.op_samples import Sample, check_outputs
from tilewright_cpu.status import ALIGNMENT

#: Bytes in front of and behind every array, which no kernel may touch.
_GUARD = 128


class CompiledModule:
    """A module's kernel in this process; call it with arguments in the kernel's order, and a grid.

    LLVM generates its code at level 0, in a third of the time: these tests prove the LLVM IR that
    the backend writes. The conformance suite runs all operations at the level of users.
    """

    def __init__(
        self,
        module: Module,
        options: dict[str, Any] | None = None,
        imports: dict[str, int] | None = None,
        target: Target | None = None,
    ) -> None:
        from tilewright.llvm.codegen import compile
        from tilewright.llvm.codegen.link import load_object
        from tilewright_cpu.lower import lower
        from tilewright_cpu.target import host

        self.module = module
        quick = functools.partial(compile.compile_to_object, opt=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compile, "compile_to_object", quick)
            self.code = lower(module, target or host(), options or {})
        symbol = self.code.metadata["kernel"]
        self.loaded = load_object(self.code.binary, [symbol], imports or {})
        self._function = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        )(self.loaded.address(symbol))
        self.status = np.zeros(16, np.int32)

    def pack(self, arguments: Sequence[Any], grid: tuple[int, int, int]) -> np.ndarray:
        """The kernel's argument slots."""
        slots = [*grid, self.status.ctypes.data, 0]
        for value, argument in zip(arguments, self.module.kernel.arguments, strict=True):
            if isinstance(argument.type, DescriptorType):
                slots += [value.base.ctypes.data, *value.shape, *value.strides]
            else:
                slots.append(
                    value.ctypes.data
                    if isinstance(argument.type, PointerType)
                    else bits_of(value, argument.type)
                )
        for position in self.code.metadata.get("bounds", ()):
            array = _bare(arguments[position])
            slots += [array.ctypes.data, array.nbytes]
        return np.array([int(slot) & (2**64 - 1) for slot in slots], np.uint64)

    def function(self, slots: int, first: int, last: int) -> None:
        """Run programs of a grid in the calling thread."""
        size, cleared = self.code.metadata["memory_bytes"], self.code.metadata["cleared_bytes"]
        memory = np.full(size + ALIGNMENT, 0xA5, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        memory[start : start + cleared] = 0
        self._function(slots, first, last, memory.ctypes.data + start)

    def __call__(self, arguments: Sequence[Any], grid: tuple[int, int, int] = (1, 1, 1)) -> None:
        slots = self.pack(arguments, grid)
        self.status[:] = 0
        self.function(slots.ctypes.data, 0, grid[0] * grid[1] * grid[2])


def _guarded(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(a copy of the array with guards around it, the memory of both)."""
    memory = np.full(array.nbytes + 2 * _GUARD + 64, 0xA5, np.uint8)
    start = _GUARD + (-memory.ctypes.data - _GUARD) % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy, memory


def _bare(value: Any) -> np.ndarray | None:
    base = getattr(value, "base", None) if not isinstance(value, np.ndarray) else value
    return base if isinstance(base, np.ndarray) else None


def run_guarded(
    kernel: CompiledModule, arguments: Sequence[Any], grid: tuple[int, int, int]
) -> list[Any]:
    """Launch with copies of the arrays that lie between guards; the copies, or an assertion about
    what was written beside them."""
    copies, memories = [], []
    for value in arguments:
        array = _bare(value)
        if array is None:
            copies.append(value)
            continue
        copy, memory = _guarded(array)
        memories.append((copy, memory))
        copies.append(
            copy
            if isinstance(value, np.ndarray)
            else interpreter.DescriptorValue(copy, value.shape, value.strides, value.padding)
        )
    kernel(copies, grid)
    for copy, memory in memories:
        start = copy.ctypes.data - memory.ctypes.data
        assert (memory[:start] == 0xA5).all() and (memory[start + copy.nbytes :] == 0xA5).all(), (
            "the kernel wrote beside an array"
        )
    return copies


@pytest.fixture(scope="session")
def compiled() -> type[CompiledModule]:
    """The class whose calls compile a module for this machine."""
    return CompiledModule


@pytest.fixture(scope="session")
def guarded() -> Callable[..., list[Any]]:
    """See :func:`run_guarded`."""
    return run_guarded


@pytest.fixture(scope="session")
def agree() -> Callable[..., list[Any]]:
    """``agree(sample, seed=0)``: run a sample here and on the reference, with outputs poisoned, and
    compare; the arguments after the run here."""

    def check(sample: Sample, seed: int = 0, arguments: Sequence[Any] | None = None) -> list[Any]:
        given = (
            list(arguments)
            if arguments is not None
            else sample.make_arguments(np.random.default_rng(seed))
        )
        for position in sample.outputs:
            array = _bare(given[position])
            if (
                array is not None
                and sample.arguments[position].draw.array is not None
                and not array.any()
            ):
                array.view(np.uint8)[...] = 1 if array.dtype == np.bool_ else 0xA5
        expected = []
        for value in given:
            array = _bare(value)
            if array is None or isinstance(value, np.ndarray):
                expected.append(value if array is None else array.copy())
            else:
                expected.append(
                    interpreter.DescriptorValue(
                        array.copy(), value.shape, value.strides, value.padding
                    )
                )
        interpreter.run(sample.module, expected, sample.grid)
        found = run_guarded(CompiledModule(sample.module), given, sample.grid)
        check_outputs(sample, expected, found)
        return found

    return check


@pytest.fixture(scope="session")
def same_as_reference() -> Callable[..., list[Any]]:
    """``same_as_reference(text or module, arguments, grid=(1, 1, 1), ulp=0.0, options={})``: run a
    kernel between guards and on the reference and compare every array: bit by bit for integers,
    floats within a relative error; the arguments after the run here."""
    from tilewright.ir.parser import parse_module
    from tilewright.ir.verifier import verify

    def check(
        kernel: Module | str,
        arguments: Sequence[Any],
        grid: tuple[int, int, int] = (1, 1, 1),
        *,
        relative: float = 0.0,
        **options: Any,
    ) -> list[Any]:
        module = parse_module(f"tilewright.ir 1.0\n{kernel}") if isinstance(kernel, str) else kernel
        verify(module)
        expected = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
        with np.errstate(all="ignore"):
            interpreter.run(module, expected, grid)
        found = run_guarded(
            CompiledModule(module, {"enable_fp_fusion": False, **options}), arguments, grid
        )
        for position, (right, ours) in enumerate(zip(expected, found, strict=True)):
            if isinstance(right, np.ndarray):
                np.testing.assert_allclose(
                    ours,
                    right,
                    rtol=relative,
                    atol=relative,
                    equal_nan=True,
                    err_msg=f"argument {position}",
                )
        return found

    return check


#: NumPy dtype -> the text of the language's type.
_TYPE_TEXTS = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float16": "fp16", "float32": "fp32", "float64": "fp64",
}  # fmt: skip


def signature_of(fn: Any, arguments: Sequence[Any], types: dict[str, str]) -> dict[str, str]:
    """The types of a kernel's leading parameters: of arrays and NumPy numbers by their dtype, of
    other numbers i32 and fp32; ``types`` go first."""
    found = {}
    for name, value in zip(fn.arg_names, arguments, strict=False):
        if isinstance(value, np.ndarray):
            text = "*" + _TYPE_TEXTS[value.dtype.name]
        elif isinstance(value, np.generic):
            text = _TYPE_TEXTS[value.dtype.name]
        else:
            text = "fp32" if isinstance(value, float) else "i32"
        found[name] = types.get(name, text)
    return found


@pytest.fixture(scope="session")
def module_of() -> Callable[..., Module]:
    """``module_of(kernel, arguments, types={}, optimise=True, extents={}, **constexprs)``: a kernel
    of the language as a module for these arguments.

    ``extents`` puts other numbers in the place of the powers of two that the language asks for:
    choose ones that mean nothing else in the kernel.
    """
    from tilewright.frontend.compile import compile_function
    from tilewright.ir.parser import parse_module
    from tilewright.ir.printer import print_module
    from tilewright.language.options import Options
    from tilewright.passes import pipeline
    from tilewright_cpu.manifest import CAPABILITIES

    language = Options(target=Target("cpu", "x86-64", kind="cpu", capabilities=CAPABILITIES))

    def build(
        fn: Any,
        arguments: Sequence[Any],
        types: dict[str, str] | None = None,
        *,
        optimise: bool = True,
        extents: dict[int, int] | None = None,
        **constants: Any,
    ) -> Module:
        signature = {
            **signature_of(fn, arguments, types or {}),
            **dict.fromkeys(constants, "constexpr"),
        }
        module = compile_function(fn, signature, constants, None, language)
        if extents:
            text = print_module(module, locations=False)
            numbers = "|".join(map(str, extents))
            module = parse_module(
                re.sub(
                    rf"(?<![%\d])(?:(?<=\dx)|(?<!\w))({numbers})(?=x|\b)",
                    lambda found: str(extents[int(found[1])]),
                    text,
                )
            )
        if optimise:
            pipeline.run(module, pipeline.STANDARD)
        return module

    return build


@pytest.fixture(scope="session")
def kernel_agrees(
    module_of: Callable[..., Module], same_as_reference: Callable[..., list[Any]]
) -> Callable[..., list[Any]]:
    """``kernel_agrees(kernel, arguments, grid=(1, 1, 1), relative=0.0, types={}, **constexprs)``: a
    kernel of the language against the reference (see ``same_as_reference``), as the frontend wrote
    it and after the standard passes; the arguments after the latter run."""

    def check(
        fn: Any,
        arguments: Sequence[Any],
        grid: tuple[int, int, int] = (1, 1, 1),
        *,
        relative: float = 0.0,
        types: dict[str, str] | None = None,
        **meta: Any,
    ) -> list[Any]:
        found: list[Any] = []
        for optimise in (False, True):
            found = same_as_reference(
                module_of(fn, arguments, types, optimise=optimise, **meta),
                arguments,
                grid,
                relative=relative,
            )
        return found

    return check
