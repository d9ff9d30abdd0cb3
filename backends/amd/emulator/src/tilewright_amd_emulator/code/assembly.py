"""Parser of AMDGPU assembly text: instructions, labels, constants and kernel descriptors."""

from __future__ import annotations

import re

from tilewright_amd_emulator.code.operands import Operand, operand, split
from tilewright_amd_emulator.code.program import Instruction, Kernel, Program
from tilewright_amd_emulator.errors import WaveError

_ENCODINGS = ("_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa")
#: instructions whose operand is a notation of its own
_RAW = ("s_waitcnt", "s_wait_", "s_delay_alu", "s_sendmsg")
_LABEL = re.compile(r"^([A-Za-z_.$][\w.$@]*|\"[^\"]+\"):\s*")
#: Half of the distance to a label that is too far for s_branch: LLVM adds it to what s_getpc
#: yields, and branches by s_setpc.
_DISTANCE = re.compile(r"\((\S+)-\.Lpost_getpc\d+\)(?:&4294967295|>>32)$")
_SIZES = {
    ".byte": 1,
    ".short": 2,
    ".2byte": 2,
    ".hword": 2,
    ".long": 4,
    ".4byte": 4,
    ".word": 4,
    ".quad": 8,
    ".8byte": 8,
}
_FILLS = (".zero", ".skip", ".space", ".ascii", ".asciz", ".fill")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "b": 8, "f": 12}


def instruction(text: str, line: int) -> Instruction:
    """The instruction that one line stands for."""
    if "::" in text:
        first, second = (instruction(part.strip(), line) for part in text.split("::"))
        first.second, first.text = second, text
        return first
    mnemonic, _, rest = text.partition(" ")
    mnemonic, rest = mnemonic.strip(), rest.strip()
    name, encoding = mnemonic, ""
    for suffix in _ENCODINGS:
        if name.endswith(suffix):
            name, encoding = name.removesuffix(suffix), suffix[1:]
            break
    if name.startswith(_RAW):
        return Instruction(line, text, mnemonic, name, encoding, (Operand("text", rest),), {})
    pieces = split(rest, ",")
    operands, modifiers = [], {}
    for place, piece in enumerate(pieces):
        words = split(piece, " ")
        if place < len(pieces) - 1 and len(words) > 1 and not words[0].startswith("s_"):
            raise WaveError(f"operand {piece!r} is not understood", line, text)
        plain = bool(words) and not re.match(r"^[a-z_0-9]+:", words[0])
        if plain:
            operands.append(operand(words[0]))
        for word in words[1:] if plain else words:
            key, _, value = word.partition(":")
            if key in modifiers:
                raise WaveError(f"modifier {key!r} twice", line, text)
            modifiers[key] = value
    return Instruction(line, text, mnemonic, name, encoding, tuple(operands), modifiers)


def _number(text: str) -> int:
    return int(text.strip(), 0)


def _string(text: str) -> bytes:
    """The bytes of a quoted string with the escapes of the assembler."""
    body, out, place = text.strip()[1:-1], bytearray(), 0
    while place < len(body):
        if body[place] != "\\":
            out += body[place].encode()
            place += 1
        elif m := re.match(r"[0-7]{1,3}", body[place + 1 :]):
            out.append(int(m.group(), 8) & 255)
            place += 1 + m.end()
        else:
            out.append(_ESCAPES.get(body[place + 1], ord(body[place + 1])))
            place += 2
    return bytes(out)


def _datum(directive: str, rest: str, line: int) -> bytes:
    if directive in _SIZES:
        try:
            return b"".join(
                (_number(n) & ((1 << 8 * _SIZES[directive]) - 1)).to_bytes(
                    _SIZES[directive], "little"
                )
                for n in rest.split(",")
            )
        except ValueError:
            raise WaveError(
                "data that refer to symbols are not supported", line, f"{directive} {rest}"
            ) from None
    if directive in (".zero", ".skip", ".space"):
        return bytes(_number(rest.split(",")[0]))
    if directive in (".ascii", ".asciz"):
        return _string(rest) + (b"\0" if directive == ".asciz" else b"")
    if directive == ".fill":
        numbers = [_number(n) for n in rest.split(",")]
        size, value = (numbers + [1, 0][len(numbers) - 1 :])[1:3]
        return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little") * numbers[0]
    raise WaveError("this directive is not known", line, f"{directive} {rest}")


def load(text: str) -> Program:
    """Parse the text that LLVM's assembly printer yields for triple amdgcn-amd-amdhsa."""
    target = ""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    descriptors: dict[str, dict[str, int]] = {}
    data: dict[str, bytearray] = {}
    section, symbol, descriptor, metadata = ".text", "", "", False
    far = ""  # the label of a branch by s_setpc
    for line, raw in enumerate(text.splitlines(), 1):
        stripped = raw.split("//")[0].strip() if '"' in raw else re.split(r";|//", raw)[0].strip()
        if stripped == ".amdgpu_metadata":
            metadata = True
        if metadata:
            metadata = stripped != ".end_amdgpu_metadata"
            continue
        while m := _LABEL.match(stripped):
            symbol = m.group(1).strip('"')
            labels[symbol] = len(instructions)
            if section != ".text":
                data[symbol] = bytearray()
            stripped = stripped[m.end() :]
        if not stripped:
            continue
        directive, _, rest = stripped.replace("\t", " ").partition(" ")
        if not directive.startswith("."):
            if not section.startswith(".text"):
                raise WaveError("an instruction outside of .text", line, stripped)
            if distance := _DISTANCE.search(stripped):
                far, stripped = distance.group(1), stripped[: distance.start()] + "0"
            elif far and directive == "s_setpc_b64":
                far, stripped = "", f"s_branch {far}"
            instructions.append(instruction(stripped.replace("\t", " "), line))
        elif directive == ".amdgcn_target":
            target = rest.strip().strip('"').split("--")[1].split(":")[0]
        elif directive in (".text", ".data", ".bss"):
            section = directive
        elif directive == ".section":
            section = rest.split(",")[0].strip()
        elif directive == ".amdhsa_kernel":
            descriptor = rest.strip().strip('"')
            descriptors[descriptor] = {}
        elif directive == ".end_amdhsa_kernel":
            descriptor = ""
        elif directive.startswith(".amdhsa_") and descriptor:
            if re.match(r"^-?(0x)?[0-9a-fA-F]+$", rest.strip()):
                descriptors[descriptor][directive.removeprefix(".amdhsa_")] = _number(rest)
        elif not section.startswith((".text", ".AMDGPU", ".note")) and (
            directive in _SIZES or directive in _FILLS
        ):
            data.setdefault(symbol, bytearray()).extend(_datum(directive, rest, line))
    if not re.match(r"^gfx(9|11|12)[0-9a-f]{2}$", target):
        raise WaveError(
            f"the text is for {target or 'no target'}; it must have a directive .amdgcn_target of "
            "gfx9, gfx11 or gfx12"
        )
    size = 64 if target.startswith("gfx9") else 32
    kernels = {}
    for name, directives in descriptors.items():
        if name not in labels:
            raise WaveError(f"the kernel {name!r} has a descriptor but no code")
        if size == 32 and directives.get("wavefront_size32", 1) == 0:
            size = 64
        kernels[name] = Kernel(name, labels[name], directives)
    return Program(
        target,
        size,
        instructions,
        labels,
        kernels,
        {name: bytes(value) for name, value in data.items()},
    )
