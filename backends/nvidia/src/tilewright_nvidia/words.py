"""Elements in machine words: memory is accessed, and matrix instructions are fed, in words of 32 bits that hold several narrow elements.

Where a word came from is remembered, so that elements which go on together are not packed again.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.llvm.writer import FunctionWriter

#: LLVM types of one element: bits.
BITS = {"i8": 8, "i16": 16, "half": 16, "bfloat": 16, "i32": 32, "float": 32, "i64": 64, "double": 64, "ptr": 64}


class Words:
    """Packs and unpacks; remembers for each element the word it was taken from, and addresses that it made."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[str, str, int]] = {}
        self._addresses: dict[tuple[object, str, str, int], str] = {}

    def unpack(self, w: FunctionWriter, word: str, word_type: str, type_: str) -> list[str]:
        """The elements of LLVM type ``type_`` in a word of an integer type, lowest first."""
        if type_ == word_type:
            return [word]
        count = BITS[word_type] // BITS[type_]
        if count == 1:
            names = [w.emit(f"{'inttoptr' if type_ == 'ptr' else 'bitcast'} {word_type} {word} to {type_}")]
        else:
            vector = w.emit(f"bitcast {word_type} {word} to <{count} x {type_}>")
            names = [w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}") for i in range(count)]
        for i, name in enumerate(names):
            self._sources[name] = (word, word_type, i)
        return names

    def pack(self, w: FunctionWriter, names: Sequence[str], type_: str, word_type: str) -> str:
        """The word of an integer type that holds elements of LLVM type ``type_``, lowest first."""
        if type_ == word_type:
            return names[0]
        source = self._sources.get(names[0])
        if source is not None and source[1:] == (word_type, 0):
            word = source[0]
            if all(self._sources.get(name) == (word, word_type, i) for i, name in enumerate(names)):
                return word
        if len(names) == 1:
            return w.emit(f"{'ptrtoint' if type_ == 'ptr' else 'bitcast'} {type_} {names[0]} to {word_type}")
        vector_type = f"<{len(names)} x {type_}>"
        if all(name[0] != "%" for name in names):
            return w.emit(f"bitcast {vector_type} <{', '.join(f'{type_} {name}' for name in names)}> to {word_type}")
        vector = "poison"
        for i, name in enumerate(names):
            vector = w.emit(f"insertelement {vector_type} {vector}, {type_} {name}, i32 {i}")
        return w.emit(f"bitcast {vector_type} {vector} to {word_type}")

    def address(self, w: FunctionWriter, base: str, thread: str, bits: int) -> str:
        """``base + (thread ^ bits)`` in shared memory; written once a block."""
        key = (w.current, base, thread, bits)
        if key not in self._addresses:
            offset = w.emit(f"xor i32 {thread}, {bits}") if bits else thread
            self._addresses[key] = w.emit(f"getelementptr i8, ptr addrspace(3) {base}, i32 {offset}")
        return self._addresses[key]
