"""Inline assembly and external library functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.value_types.dtypes import block_type, dtype
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import unwrap_if_constexpr


@builtin
def inline_asm_elementwise(
    asm: Any,
    constraints: Any,
    args: Any,
    dtype: Any,
    is_pure: Any,
    pack: Any,
    _semantic: Any = None,
) -> Any:
    """Run code in the target's assembly language on every group of ``pack`` elements.

    On a GPU, each thread runs the assembly code for the elements that it holds. If all operands are
    scalars, every thread runs the assembly code on them, and the result is a scalar. This scalar
    may differ between threads, for example if the code reads the thread's number. If the condition
    of a branch depends on a scalar that differs between threads, each thread decides by itself
    whether to take the branch. Code in such a branch may load, store and run assembly, but must not
    contain operations that need all threads of the program instance.

    Args:
        asm: the assembly code, a string that is known at compile time; ``$0`` is the first result.
        constraints: LLVM constraints, outputs first. Elements narrower than 32 bits are packed into
            32-bit registers, or are in narrower registers if the constraint names them (for example
            ``h`` for 16 bits).
        args: tensors and numbers; they are broadcast.
        dtype: the element type of the result, or a tuple of them for several results.
        is_pure: whether the assembly code has no side effects.
        pack: the number of elements of each argument that one run of the assembly code processes.

    Returns:
        A tensor of the operands' common shape. If ``dtype`` is a tuple, the result is a tuple that
        contains a tensor of this shape for each element type.

    Raises:
        LoweringError: the target does not support assembly, or rejects the code; or a branch or
            loop depends on a value that may differ between threads, and contains an operation that
            needs all threads, such as a reduction or ``debug_barrier``.

    Example:
        y = tl.inline_asm_elementwise(
            "add.s32 $0, $1, 1;", "=r,r", [n], dtype=tl.int32, is_pure=True, pack=1
        )
    """
    text, constraint_text = (
        _semantic.constant(asm, "asm"),
        _semantic.constant(constraints, "constraints"),
    )
    group = _semantic.constant(pack, "pack")
    kinds = unwrap_if_constexpr(dtype)
    several = isinstance(kinds, list | tuple | tl_tuple)
    elements = [unwrap_if_constexpr(kind) for kind in (kinds if several else [kinds])]
    inputs = (
        _semantic.broadcast_all(*(_semantic.to_tensor(x) for x in _items(args)))
        if len(_items(args))
        else []
    )
    extents = inputs[0].extents if inputs else ()
    results = [
        (block_type(element, extents) if extents else element).ir_type for element in elements
    ]
    made = _semantic.builder.inline_asm(
        inputs=[x.handle for x in inputs],
        results=results,
        assembly=text,
        constraints=constraint_text,
        pure=bool(unwrap_if_constexpr(is_pure)),
        pack=group,
    )
    handles = made if isinstance(made, tuple) else (made,)
    outputs = [
        _semantic.wrap(handle, element) for handle, element in zip(handles, elements, strict=True)
    ]
    return tl_tuple(outputs) if several else outputs[0]


def _items(args: Any) -> list[Any]:
    plain = unwrap_if_constexpr(args)
    return list(plain) if isinstance(plain, list | tuple | tl_tuple) else [plain]


#: Argument types -> (symbol, result type).
Symbols = Mapping[tuple[dtype, ...], tuple[str, dtype]]


def dispatch(
    func: Callable[..., Any] | None,
    lib_name: str,
    lib_path: str,
    args: Sequence[tensor],
    arg_type_symbol_dict: Symbols,
    ret_type: Any,
    is_pure: bool,
    _semantic: Any,
) -> tensor:
    """Call the library function whose signature matches the types of ``args``.

    Args:
        func: emits the call, as ``func(lib_name, lib_path, symbol, handles, ir_type, is_pure)``;
            None emits the IR's ``extern``.
        ret_type: the result's type; None takes the table's element in the shape of the arguments.

    Raises:
        ValueError: the table has no such argument types.
    """
    types = tuple(x.dtype for x in args)
    found = arg_type_symbol_dict.get(types)
    if found is None:
        expected = "; ".join(", ".join(map(str, key)) for key in arg_type_symbol_dict)
        raise ValueError(
            f"input arg type does not match. Expect one of ({expected}), got "
            f"({', '.join(map(str, types))})"
        )
    symbol, element = found
    extents = args[0].extents if args else ()
    type_ = (
        ret_type if ret_type is not None else block_type(element, extents) if extents else element
    )
    handles = [x.handle for x in args]
    if func is not None:
        return tensor(func(lib_name, lib_path, symbol, handles, type_.ir_type, is_pure), type_)
    library = lib_path or lib_name
    return tensor(
        _semantic.builder.extern(
            inputs=handles, result=type_.ir_type, symbol=symbol, library=library, pure=is_pure
        ),
        type_,
    )


@builtin
def extern_elementwise(
    lib_name: Any,
    lib_path: Any,
    args: Any,
    arg_type_symbol_dict: Any,
    is_pure: Any,
    _semantic: Any = None,
) -> tensor:
    """Call a function of a target's library for each element.

    Args:
        lib_name, lib_path: the library's name and file.
        args: tensors and numbers; they broadcast, and are promoted to one type where the table
            lacks their types.
        arg_type_symbol_dict: argument types -> (symbol, result type).
        is_pure: the function has no effect but its result.

    Raises:
        ValueError: the table has no such argument types.
    """
    table: dict[tuple[dtype, ...], tuple[str, dtype]] = {
        tuple(key): (value[0], unwrap_if_constexpr(value[1]))
        for key, value in unwrap_if_constexpr(arg_type_symbol_dict).items()
    }
    inputs = [_semantic.to_tensor(x) for x in _items(args)]
    if tuple(x.dtype for x in inputs) not in table and len(inputs) > 1:
        common = inputs[0]
        for x in inputs[1:]:
            common, _ = _semantic.promote(common, x)
        inputs = [_semantic.cast(x, common.dtype) for x in inputs]
    inputs = _semantic.broadcast_all(*inputs)
    names = [unwrap_if_constexpr(name) or "" for name in (lib_name, lib_path)]
    return dispatch(
        None, names[0], names[1], inputs, table, None, bool(unwrap_if_constexpr(is_pure)), _semantic
    )
