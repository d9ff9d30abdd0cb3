"""Packed registers (b32): several narrow elements in one register, as memory and MMA use them.

The cache records each element's packed register, so that elements which stay together are not
packed again. It also records the f32 source of rounded elements, so that packing rounds two at a
time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tilewright.llvm.assembly.inline_assembly import BITS
from tilewright.llvm.emission.writer import FunctionWriter, float_constant
from tilewright_nvidia.codegen.inline_ptx import call_asm


class PackedRegisters:
    """Packs and unpacks elements, and caches where they came from and what each block emitted."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[str, str, int]] = {}
        #: element rounded from f32 -> (that f32 number, PTX type of a pair)
        self._rounded: dict[str, tuple[str, str]] = {}
        #: the same for elements of 8 bits
        self._rounded_bytes: dict[str, tuple[str, str]] = {}
        #: shifted upper half -> the register that it came from
        self._upper: dict[str, str] = {}
        #: permuted register -> (its source, the selector of ``prmt``)
        self._permuted: dict[str, tuple[str, int]] = {}
        self._written: dict[Hashable, str] = {}
        #: (block, element) -> the place in a register that the block packed it into
        self._joined: dict[tuple[object, str], tuple[str, str, int]] = {}

    def round(self, name: str, operand: str, pair: str) -> None:
        """Record that an element is an f32 rounded to nearest, which ``pack`` converts in pairs.

        ``pair`` is the PTX type of a pair.
        """
        self._rounded[name] = operand, pair

    def round_byte(self, name: str, operand: str, kind: str) -> None:
        """Record that an 8-bit element is an f32 rounded by ``cvt.rn.satfinite``.

        The instruction takes pairs; ``kind`` is the PTX type of a pair.
        """
        self._rounded_bytes[name] = operand, kind

    def single(self, w: FunctionWriter, name: str) -> str | None:
        """Convert a bf16 element to f32 in one instruction; None if that is impossible.

        The element must come from a packed register or be rounded from f32.
        """
        number, pair = self._rounded.get(name, ("", ""))
        if pair == "bf16x2":
            # a pair is rounded at four times the rate of one number: with zero below it, the
            # register is the f32
            (word,) = call_asm(
                w,
                "cvt.rn.bf16x2.f32 $0, $1, $2;",
                ["i32"],
                [("float", number), ("float", "0.0")],
                effects=False,
            )
            return w.emit(f"bitcast i32 {word} to float")
        word, word_type, at = self._sources.get(name, ("", "", 0))
        if word_type != "i32":
            return None
        bits = w.emit(f"and i32 {word}, -65536" if at else f"shl i32 {word}, 16")
        return w.emit(f"bitcast i32 {bits} to float")

    def unpack(self, w: FunctionWriter, word: str, word_type: str, type_: str) -> list[str]:
        """Return the elements of LLVM type ``type_`` in an integer register, lowest first."""
        if type_ == word_type:
            return [word]
        count = BITS[word_type] // BITS[type_]
        if count == 1:
            names = [
                w.emit(
                    f"{'inttoptr' if type_ == 'ptr' else 'bitcast'} {word_type} {word} to {type_}"
                )
            ]
        else:
            vector = w.emit(f"bitcast {word_type} {word} to <{count} x {type_}>")
            names = [
                w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}")
                for i in range(count)
            ]
        for i, name in enumerate(names):
            self._sources[name] = (word, word_type, i)
        return names

    def pack(self, w: FunctionWriter, names: Sequence[str], type_: str, word_type: str) -> str:
        """Pack elements of LLVM type ``type_`` into an integer register, lowest first."""
        if type_ == word_type:
            return names[0]
        source = self._sources.get(names[0])
        if source is not None and source[1:] == (word_type, 0):
            word = source[0]
            if all(self._sources.get(name) == (word, word_type, i) for i, name in enumerate(names)):
                return word
        rounded = [self._rounded[name] for name in names if name in self._rounded]
        if len(names) == len(rounded) == 2 and word_type == "i32":
            (low, pair), (high, _) = rounded
            return call_asm(
                w,
                f"cvt.rn.{pair}.f32 $0, $1, $2;",
                ["i32"],
                [("float", high), ("float", low)],
                effects=False,
            )[0]
        if len(names) > 1 and all(name in self._rounded_bytes for name in names):
            return self._bytes_word(w, [self._rounded_bytes[name] for name in names], word_type)
        if len(names) == 1:
            return w.emit(
                f"{'ptrtoint' if type_ == 'ptr' else 'bitcast'} {type_} {names[0]} to {word_type}"
            )
        vector_type = f"<{len(names)} x {type_}>"
        if all(name[0] != "%" for name in names):
            return w.emit(
                f"bitcast {vector_type} <{', '.join(f'{type_} {name}' for name in names)}> to "
                f"{word_type}"
            )
        vector = "poison"
        for i, name in enumerate(names):
            vector = w.emit(f"insertelement {vector_type} {vector}, {type_} {name}, i32 {i}")
        return w.emit(f"bitcast {vector_type} {vector} to {word_type}")

    def _bytes_word(
        self, w: FunctionWriter, rounded: Sequence[tuple[str, str]], word_type: str
    ) -> str:
        """Round two or four f32 numbers to 8 bits in pairs, and pack them."""
        kind = rounded[0][1]
        pairs = []
        for (low, _), (high, _) in zip(rounded[::2], rounded[1::2], strict=True):
            pairs += call_asm(
                w,
                f"cvt.rn.satfinite.{kind}.f32 $0, $1, $2;",
                ["i16"],
                [("float", high), ("float", low)],
                effects=False,
            )
        return self.pack(w, pairs, "i16", word_type)

    def shifted(self, w: FunctionWriter, word: str) -> str:
        """Return the upper half of an i32 as an i32."""
        name = w.emit(f"lshr i32 {word}, 16")
        self._upper[name] = word
        return name

    def half(self, w: FunctionWriter, name: str) -> str:
        """Return the lower half of an i32 as an i16.

        If the i32 is another register's shifted upper half, the result is known to be that
        register's second element.
        """
        word = self._upper.get(name)
        return self.unpack(w, word or name, "i32", "i16")[1 if word else 0]

    def widened(self, w: FunctionWriter, name: str, kind: str, type_: str) -> str:
        """Convert an fp8 element to ``half`` or bf16 (``i16``), together with its neighbour.

        ``kind`` is the PTX type of a pair. The conversion is emitted once per block.
        """
        word, word_type, i = self._sources.get(name, (name, "i8", 0))
        key = (w.current, word, kind + type_, i // 2)
        if key not in self._written:
            if word_type == "i8":
                pair = w.emit(f"zext i8 {name} to i16")
            else:
                moved = w.emit(f"lshr {word_type} {word}, {16 * (i // 2)}") if i > 1 else word
                pair = moved if word_type == "i16" else w.emit(f"trunc {word_type} {moved} to i16")
            (wide,) = call_asm(
                w, f"cvt.rn.f16x2.{kind} $0, $1;", ["i32"], [("i16", pair)], effects=False
            )
            if type_ != "half":
                singles = [
                    ("float", w.emit(f"fpext half {half} to float"))
                    for half in self.unpack(w, wide, "i32", "half")
                ]
                (wide,) = call_asm(
                    w, "cvt.rn.bf16x2.f32 $0, $2, $1;", ["i32"], singles, effects=False
                )
            self._written[key] = wide
        return self.unpack(w, self._written[key], "i32", type_)[i % 2]

    def byte(self, w: FunctionWriter, name: str, *, signed: bool) -> str:
        """Convert an 8-bit integer to ``float`` without a conversion instruction.

        The byte becomes the lowest mantissa bits of 2^23, and a subtraction leaves the number.
        PTX's own conversions run at an eighth of the rate of these instructions.
        """
        word, word_type, i = self._sources.get(name, (name, "i8", 0))
        if word_type != "i32":
            key = word, "wide"
            if not self.is_written(w, key):
                self.write(w, key, w.emit(f"zext {word_type} {word} to i32"))
            word = self.written(w, key)
        if signed:
            key = word, "signs"
            if not self.is_written(w, key):
                self.write(
                    w,
                    key,
                    w.emit(
                        f"xor i32 {word}, {0x80808080 - (1 << 32) if word_type != 'i8' else 0x80}"
                    ),
                )
            word = self.written(w, key)
        if word_type == "i8":
            bits = w.emit(f"or i32 {word}, {0x4B000000}")
        else:
            bits = w.call(
                "llvm.nvvm.prmt",
                "i32",
                [("i32", word), ("i32", str(0x4B000000)), ("i32", str(0x7540 | i))],
            )
        return w.emit(
            f"fsub float {w.emit(f'bitcast i32 {bits} to float')}, "
            f"{float_constant('float', float((1 << 23) + (128 if signed else 0)))}"
        )

    def permute(self, w: FunctionWriter, word: str, selector: int) -> str:
        """Permute a register's bytes with ``prmt``, and record the permutation for conversions."""
        name = w.call(
            "llvm.nvvm.prmt", "i32", [("i32", word), ("i32", word), ("i32", str(selector))]
        )
        self._permuted[name] = word, selector
        return name

    def narrow_float(self, w: FunctionWriter, name: str, type_: str, *, signed: bool) -> str | None:
        """Convert an 8-bit integer to ``half`` or bf16 (``i16``), together with its neighbour.

        Both bytes enter the mantissas of a power of two, which is subtracted, once per block. None
        if the element does not come from a packed register.
        """
        word, word_type, i = self._sources.get(name, (name, "", 0))
        if word_type not in ("i16", "i32"):
            return None
        key = word, type_, signed, i // 2
        if not self.is_written(w, key):
            source, selector = self._permuted.get(word, (word, 0x3210))
            if word_type == "i16":
                source = w.emit(f"zext i16 {word} to i32")
            low, high = (selector >> 4 * (i // 2 * 2 + place) & 3 for place in range(2))
            self.write(
                w,
                key,
                (self._half_pair if type_ == "half" else self._bf16_pair)(
                    w, source, low, high, signed
                ),
            )
        return self.unpack(w, self.written(w, key), "i32", type_)[i % 2]

    @staticmethod
    def _half_pair(w: FunctionWriter, word: str, low: int, high: int, signed: bool) -> str:
        if signed:
            word = w.emit(f"xor i32 {word}, {0x80808080 - (1 << 32)}")
        if (low, high) == (0, 2):
            bits = masked(w, word, 0x00FF00FF, 0x64006400)
        else:
            bits = w.call(
                "llvm.nvvm.prmt",
                "i32",
                [("i32", str(0x64646464)), ("i32", word), ("i32", str(0x0404 | low | high << 8))],
            )
        minimum = float_constant("half", 1152.0 if signed else 1024.0)
        number = w.emit(
            f"fsub <2 x half> {w.emit(f'bitcast i32 {bits} to <2 x half>')}, <half {minimum}, "
            f"half {minimum}>"
        )
        return w.emit(f"bitcast <2 x half> {number} to i32")

    @staticmethod
    def _bf16_pair(w: FunctionWriter, word: str, low: int, high: int, signed: bool) -> str:
        """Convert two bytes to bf16.

        The mantissa has seven bits, so the eighth bit of a byte selects the subtrahend.
        """
        if (low, high) == (1, 3):
            word = w.emit(f"lshr i32 {word}, 8")
        elif (low, high) != (0, 2):
            word = w.call(
                "llvm.nvvm.prmt",
                "i32",
                [("i32", word), ("i32", "0"), ("i32", str(0x4040 | low | high << 8))],
            )
        bits = masked(w, word, 0x007F007F, 0x43004300)
        # -128 or -256
        minimum = masked(w, word, 0x00800080, 0xC300C300, complement=not signed)
        one, add = str(0x3F803F80), "fma.rn.bf16x2 $0, $1, $2, $3;"
        (number,) = call_asm(
            w, add, ["i32"], [("i32", bits), ("i32", one), ("i32", minimum)], effects=False
        )
        if not signed:
            (number,) = call_asm(
                w,
                add,
                ["i32"],
                [("i32", number), ("i32", one), ("i32", str(0x43004300))],
                effects=False,
            )
        return number

    def pair(
        self, w: FunctionWriter, names: Sequence[str], type_: str
    ) -> tuple[int, list[str]] | None:
        """Return (half of a register, registers with each of the 16-bit elements in that half).

        An element that is not in such a half, such as a common factor, is broadcast to both halves
        of a register. None if no element comes from a packed register.
        """
        places = [self._place(w, name) for name in names]
        halves = [place[2] for place in places if place is not None and place[1] == "i32"]
        if not halves:
            return None
        at, words = halves[0], []
        for name, place in zip(names, places, strict=True):
            there = place is not None and place[1:] == ("i32", at)
            words.append(place[0] if place is not None and there else self._both(w, name, type_))
        return at, words

    def follow_registers(self, w: FunctionWriter, names: Sequence[str]) -> bool:
        """Return whether the first two elements are one register's halves in order, or of none."""
        first, second = (self._place(w, name) for name in names[:2])
        return (first is None and second is None) or (
            first is not None and second == (*first[:2], 1) and first[2] == 0
        )

    def _place(self, w: FunctionWriter, name: str) -> tuple[str, str, int] | None:
        return self._sources.get(name) or self._joined.get((w.current, name))

    def join(self, w: FunctionWriter, names: Sequence[str], type_: str) -> None:
        """Pack consecutive 16-bit elements in pairs, for later operations of the block.

        Elements that come from packed registers stay as they are.
        """
        for low, high in zip(names[::2], names[1::2], strict=True):
            known = any(self._place(w, name) is not None for name in (low, high))
            if low != high and not known and all(name.startswith("%") for name in (low, high)):
                word = self.pack(w, [low, high], type_, "i32")
                for at, name in enumerate((low, high)):
                    self._joined[w.current, name] = (word, "i32", at)

    def is_written(self, w: FunctionWriter, key: Hashable) -> bool:
        """Return whether the block has a value from :meth:`write` under a key."""
        return (w.current, key) in self._written

    def write(self, w: FunctionWriter, key: Hashable, name: str) -> None:
        """Cache a value for the rest of the block."""
        self._written[w.current, key] = name

    def written(self, w: FunctionWriter, key: Hashable) -> str:
        """Return the block's cached value under a key."""
        return self._written[w.current, key]

    def _both(self, w: FunctionWriter, name: str, type_: str) -> str:
        """Broadcast a 16-bit element to both halves of a register."""
        key = name, "both"
        if self.is_written(w, key):
            return self.written(w, key)
        if name in self._rounded:
            number, pair = self._rounded[name]
            (word,) = call_asm(
                w, f"cvt.rn.{pair}.f32 $0, $1, $1;", ["i32"], [("float", number)], effects=False
            )
        else:
            half = w.emit(f"insertelement <2 x {type_}> poison, {type_} {name}, i32 0")
            word = w.emit(
                f"bitcast <2 x {type_}> "
                f"{w.emit(f'insertelement <2 x {type_}> {half}, {type_} {name}, i32 1')} to i32"
            )
        self.write(w, key, word)
        return word

    def address(self, w: FunctionWriter, base: str, thread: str, bits: int) -> str:
        """Return ``base + (thread ^ bits)`` in shared memory, emitted once per block."""
        key = (w.current, base, thread, bits)
        if key not in self._written:
            offset = w.emit(f"xor i32 {thread}, {bits}") if bits else thread
            self._written[key] = w.emit(f"getelementptr i8, ptr addrspace(3) {base}, i32 {offset}")
        return self._written[key]


def masked(w: FunctionWriter, word: str, mask: int, bits: int, *, complement: bool = False) -> str:
    """Return ``word & mask | bits``, or ``~word & mask | bits``, in one ``lop3``.

    For LLVM's ``or`` of an ``and``, ptxas would load the mask each time. In ``lop3`` it makes the
    second operand an immediate and keeps the third one in a register.
    """
    operands = [
        ("i32", word),
        *(("i32", str(number - (number >> 31 << 32))) for number in (mask, bits)),
    ]
    return call_asm(
        w,
        f"lop3.b32 $0, $1, $2, $3, {'0xAE' if complement else '0xEA'};",
        ["i32"],
        operands,
        effects=False,
    )[0]
