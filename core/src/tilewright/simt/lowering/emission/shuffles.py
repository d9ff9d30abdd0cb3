"""Exchange of values of any type between the lanes of a warp, by 32-bit shuffles.

Narrow values from the same lane share a word; 64-bit values take two words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.llvm.emission.writer import FunctionWriter

#: LLVM type -> (the integer type of its bits, values in a word; 0 if a value takes two words).
_FORMS: dict[str, tuple[str, int]] = {
    "i1": ("i8", 4),
    "i8": ("i8", 4),
    "i16": ("i16", 2),
    "half": ("i16", 2),
    "i32": ("i32", 1),
    "float": ("i32", 1),
    "i64": ("i64", 0),
    "double": ("i64", 0),
    "ptr": ("i64", 0),
}


def words_of(type_: str, count: int) -> int:
    """Return how many 32-bit words ``count`` values of an LLVM type take."""
    share = _FORMS[type_][1]
    return -(-count // share) if share else 2 * count


def exchange(
    w: FunctionWriter,
    type_: str,
    names: Sequence[str],
    shuffle: Callable[[list[str]], list[str]],
) -> list[str]:
    """Exchange values with another lane; ``shuffle`` maps this lane's words to the other lane's.

    Args:
        names: values of one LLVM type that come from the same lane.
    """
    share = _FORMS[type_][1]
    bits = [_to_bits(w, type_, name) for name in names]
    if share == 0:
        words = [half for name in bits for half in _halves(w, name)]
    else:
        words = [_word(w, type_, bits[i : i + share]) for i in range(0, len(bits), share)]
    moved = shuffle(words)
    if share == 0:
        pairs = [_vector(w, "i32", 2, moved[i : i + 2]) for i in range(0, len(moved), 2)]
        found = [w.emit(f"bitcast <2 x i32> {pair} to i64") for pair in pairs]
    else:
        counts = [min(share, len(bits) - i) for i in range(0, len(bits), share)]
        parts = (_parts(w, type_, word, n) for word, n in zip(moved, counts, strict=True))
        found = [name for part in parts for name in part]
    return [_from_bits(w, type_, name) for name in found]


def packed(w: FunctionWriter, type_: str, names: Sequence[str]) -> str:
    """Pack values of at most 16 bits into a word."""
    return _word(w, type_, [_to_bits(w, type_, name) for name in names])


def unpacked(w: FunctionWriter, type_: str, word: str, count: int) -> list[str]:
    """Unpack the first ``count`` values from a word that :func:`packed` made."""
    return [_from_bits(w, type_, name) for name in _parts(w, type_, word, count)]


def _halves(w: FunctionWriter, name: str) -> list[str]:
    """Split an i64 into its two words."""
    pair = w.emit(f"bitcast i64 {name} to <2 x i32>")
    return [w.emit(f"extractelement <2 x i32> {pair}, i32 {i}") for i in range(2)]


def _word(w: FunctionWriter, type_: str, part: Sequence[str]) -> str:
    """Pack as many integers as fit into a word."""
    bits, share = _FORMS[type_]
    if share == 1:
        return part[0]
    if len(part) == 1:
        return w.emit(f"zext {bits} {part[0]} to i32")
    return w.emit(f"bitcast <{share} x {bits}> {_vector(w, bits, share, part)} to i32")


def _parts(w: FunctionWriter, type_: str, word: str, count: int) -> list[str]:
    """Unpack the first ``count`` integers from a word."""
    bits, share = _FORMS[type_]
    if share == 1:
        return [word]
    if count == 1:
        return [w.emit(f"trunc i32 {word} to {bits}")]
    vector = f"<{share} x {bits}>"
    unpacked = w.emit(f"bitcast i32 {word} to {vector}")
    return [w.emit(f"extractelement {vector} {unpacked}, i32 {i}") for i in range(count)]


def _vector(w: FunctionWriter, element: str, count: int, names: Sequence[str]) -> str:
    """Build a vector that begins with ``names`` and is zero beyond them.

    An undefined element would make the whole word poison.
    """
    vector = "poison" if len(names) == count else "zeroinitializer"
    for i, name in enumerate(names):
        vector = w.emit(f"insertelement <{count} x {element}> {vector}, {element} {name}, i32 {i}")
    return vector


def _to_bits(w: FunctionWriter, type_: str, name: str) -> str:
    """Convert a value to the integer of its bits."""
    bits = _FORMS[type_][0]
    if type_ == bits:
        return name
    how = {"i1": "zext", "ptr": "ptrtoint"}.get(type_, "bitcast")
    return w.emit(f"{how} {type_} {name} to {bits}")


def _from_bits(w: FunctionWriter, type_: str, name: str) -> str:
    bits = _FORMS[type_][0]
    if type_ == bits:
        return name
    how = {"i1": "trunc", "ptr": "inttoptr"}.get(type_, "bitcast")
    return w.emit(f"{how} {bits} {name} to {type_}")
