"""The status block of a launch: i32 words that a program writes where it cannot go on.

The launcher reads them. The first word says what happened, the second which of the kernel's
messages says more, the others at which program: x, y, z.
"""

#: How many words there are.
STATUS_WORDS = 5
#: The first word: an assertion failed; memory for large tiles could not be had; an exception of a
#: signal's handler stopped the launch, whose programs are to end, and which no other word replaces;
#: an access was outside an argument's memory.
ASSERTION_FAILED, OUT_OF_MEMORY, INTERRUPTED, OUT_OF_BOUNDS = 1, 2, 3, 4

#: Of the heap memory that threads give to the programs of a launch, in bytes.
ALIGNMENT = 64


def poll_symbol(kernel: str) -> str:
    """The variable of a kernel's object file that holds the address of the cancellation check.

    Where it is null, loops do not check.
    """
    return f"{kernel}.poll"
