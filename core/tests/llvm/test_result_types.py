"""Types read off the text of instructions are those that LLVM gives."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from tilewright.llvm.emission.result_types import result_type

_PARAMETERS = {
    "p": "ptr", "i": "i32", "j": "i64", "b": "i1", "f": "float", "h": "half", "v": "<8 x float>",
    "w": "<8 x i32>", "m": "<8 x i1>", "q": "<8 x ptr>",
}  # fmt: skip

INSTRUCTIONS = """\
add nuw nsw i32 %i, 1
fadd fast <8 x float> %v, %v
fmul nnan contract float %f, 0x7FF8000000000000
fneg half %h
icmp slt <8 x i32> %w, zeroinitializer
icmp eq ptr %p, null
fcmp reassoc ogt float %f, 1.0
fcmp ogt <8 x float> %v, splat (float 1.0)
select <8 x i1> %m, <8 x float> splat (float 1.0), <8 x float> %v
select i1 %b, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, <8 x i32> %w
select nnan i1 %b, float %f, float 2.0
getelementptr inbounds { i64, ptr }, ptr %p, i64 0, i32 1
getelementptr float, ptr %p, <8 x i32> %w
getelementptr i8, <8 x ptr> %q, i64 4
getelementptr <8 x float>, ptr %p, i64 %j
load <8 x float>, ptr %p, align 4
load atomic volatile i32, ptr %p monotonic, align 4
zext nneg i32 %i to i64
sext <8 x i1> %m to <8 x i32>
bitcast <8 x i1> %m to i8
ptrtoint ptr %p to i64
inttoptr i64 %j to ptr
insertelement <8 x float> poison, float %f, i64 0
extractelement <8 x ptr> %q, i32 %i
shufflevector <8 x float> %v, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
shufflevector <8 x i32> %w, <8 x i32> %w, <16 x i32> zeroinitializer
atomicrmw add ptr %p, i32 %i seq_cst, align 4
atomicrmw volatile fadd ptr %p, float %f monotonic
cmpxchg weak ptr %p, i64 %j, i64 0 monotonic monotonic
extractvalue { i64, i1 } { i64 3, i1 true }, 0
extractvalue { <2 x float>, [2 x i32] } zeroinitializer, 1, 0
insertvalue { i64, i1 } zeroinitializer, i1 %b, 1
freeze <8 x i1> %m
alloca [4 x i64], align 64
call fast <8 x float> @one(<8 x float> %v)
tail call { i32, i1 } @two(i32 %i)
call i32 asm sideeffect "movl $1, $0", "=r,r"(i32 %i)
"""


@pytest.mark.parametrize("instruction", INSTRUCTIONS.splitlines())
def test_a_type_is_the_one_that_llvm_gives(instruction: str) -> None:
    listed = ", ".join(f"{type_} %{name}" for name, type_ in _PARAMETERS.items())
    text = (
        f"declare <8 x float> @one(<8 x float>)\ndeclare {{ i32, i1 }} @two(i32)\n"
        f"define void @f({listed}) {{\n  %r = {instruction}\n  ret void\n}}\n"
    )
    function = llvm.parse_assembly(text).get_function("f")
    (given,) = [one for block in function.blocks for one in block.instructions if one.name == "r"]
    assert result_type(instruction, lambda name: _PARAMETERS[name[1:]]) == str(given.type)


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(ValueError, match="va_arg"):
        result_type("va_arg ptr %p, i32", lambda _: "ptr")
