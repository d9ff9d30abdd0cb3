"""Kernels for C programs: an object file, and a function that runs a grid of it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import BackendError
from tilewright.plugins.manifest import CodeObject, CProgram, Parameter, Target
from tilewright.runtime.arguments.c_interface import c_parameters, comment, header, text_of_c, words
from tilewright.runtime.launch.grid import MAX_EXTENT, MAX_PROGRAMS
from tilewright_cpu.status import ALIGNMENT, OUT_OF_MEMORY, STATUS_WORDS
from tilewright_cpu.target import REQUEST_STATE, TILE_DATA

#: Words before the arguments, see :mod:`.runtime`.
_HEADER_WORDS = 5


def export(
    name: str, code: CodeObject, parameters: Sequence[Parameter], target: Target
) -> CProgram:
    """Write ``name.o``, ``name.h`` and ``name_launch.c``, of which a C compiler makes a library.

    Raises:
        BackendError: the kernel prints, which takes Python.
    """
    if b"tilewright_print" in code.binary:
        raise BackendError(
            f"kernel {name} prints, which C programs cannot show: leave device_print out of it"
        )
    symbol, messages = (
        str(code.metadata.get("kernel", code.name)),
        list(code.metadata.get("asserts", ())),
    )
    given = c_parameters(parameters)
    declared = ", ".join(
        (
            "uint32_t grid_x",
            "uint32_t grid_y",
            "uint32_t grid_z",
            *(each.declaration for each in given),
        )
    )
    said = (
        f"Run kernel {name} on a grid of programs, for {target.arch}, and wait for it.\nThe "
        "threads are OpenMP's where this is compiled with it."
    )
    tiles = "@tiles.configuration" in str(code.stages.get("llir", ""))
    fails = (
        " Returns 0, or the number of an assertion that failed, from 1 on."
        if messages
        else " Returns 0."
    )
    if tiles:
        fails = (
            f"{fails[:-1]}; -1 where the system does not let the process use the processor's "
            "tile registers."
        )
    cooperative = bool(code.metadata.get("cooperative"))
    if cooperative:
        said = (
            f"Run kernel {name} on a grid of programs, for {target.arch}, all at once, and "
            "wait for it.\nEach program has a thread of its own."
        )
        fails = (
            f"{fails[:-1]}; -4 where the process can start no thread for each: none has run "
            "then. Take fewer programs, each for the work of several."
        )
    memory, cleared, arena = (
        int(code.metadata.get(f"{which}_bytes", 0)) for which in ("memory", "cleared", "arena")
    )
    if arena:
        fails = (
            f"{fails[:-1]}; -2 where there is no memory for its large tiles, {arena} bytes "
            "a thread."
        )
    fails = (
        f"{fails[:-1]}; -3 where the grid has {MAX_EXTENT} programs or more along an axis, or "
        f"more than {MAX_PROGRAMS}. An empty grid runs nothing."
    )
    lines = [*comment(said + fails, given), f"int32_t {name}_launch({declared});"]
    if messages:
        lines += [
            "",
            "/* What the assertions say, the first at index 0. */",
            f"extern const char *const {name}_messages[{len(messages)}];",
        ]
    bounded = code.metadata.get("bounds", ())
    size = _HEADER_WORDS + len(given) + 2 * len(bounded)
    body = [
        *(["#define _GNU_SOURCE"] if tiles else []),
        f'#include "{name}.h"',
        "",
        "#include <stdlib.h>",
        "#include <string.h>",
        *(
            ["#include <pthread.h>"]
            if cooperative
            else ["#ifdef _OPENMP", "#include <omp.h>", "#endif"]
        ),
        "",
        f"extern void {symbol}(const uint64_t *words, int64_t first, int64_t last, void *memory);",
        "",
    ]
    if messages:
        body += [
            (
                f"const char *const {name}_messages[{len(messages)}] = "
                f"{{{', '.join(map(text_of_c, messages))}}};"
            ),
            "",
        ]
    if tiles:
        body += ["#include <sys/syscall.h>", "#include <unistd.h>", ""]
    body += [
        f"static void {name}_run(const uint64_t *words, int64_t first, int64_t last) {{",
        *(
            [f"    {line}" for line in _with_memory(symbol, memory, cleared)]
            if memory
            else [f"    {symbol}(words, first, last, 0);"]
        ),
        "}",
        "",
        *(_threads(name) if cooperative else []),
        f"int32_t {name}_launch({declared}) {{",
        "    if (grid_x == 0 || grid_y == 0 || grid_z == 0) return 0;",
        (
            f"    if ((grid_x | grid_y | grid_z) >= {MAX_EXTENT}u || grid_z > INT64_MAX / "
            "((int64_t)grid_x * grid_y)) return -3;"
        ),
        "    const int64_t programs = (int64_t)grid_x * grid_y * grid_z;",
        *(
            [f"    if (syscall(SYS_arch_prctl, {REQUEST_STATE:#x}, {TILE_DATA}) != 0) return -1;"]
            if tiles
            else []
        ),
        f"    int32_t status[{STATUS_WORDS}] = {{0}};",
        f"    uint64_t words[{size}] = {{grid_x, grid_y, grid_z, (uint64_t)(uintptr_t)status}};",
        *(f"    {statement}" for statement in words(given, "words", _HEADER_WORDS)),
        # nothing is known of the memory behind an address
        *(
            f"    words[{_HEADER_WORDS + len(given) + 2 * position + 1}] = INT64_MAX;"
            for position in range(len(bounded))
        ),
        *(
            [f"    if (!{name}_at_once(words, programs)) return -4;"]
            if cooperative
            else _shared(name)
        ),
        *([f"    if (status[0] == {OUT_OF_MEMORY}) return -2;"] if arena else []),
        "    return status[0] ? status[1] + 1 : 0;",
        "}",
        "",
    ]
    files = {
        f"{name}.o": code.binary,
        f"{name}.h": header(name, ["stdint.h"], lines).encode(),
        f"{name}_launch.c": "\n".join(body).encode(),
    }
    return CProgram(
        files,
        (
            "-O2",
            "-shared",
            "-fPIC",
            f"{name}_launch.c",
            f"{name}.o",
            "-lm",
            *(["-pthread"] if cooperative else []),
        ),
    )


def _shared(name: str) -> list[str]:
    """The statements that share the programs among threads of OpenMP, where there is that."""
    return [
        "#ifdef _OPENMP",
        "#pragma omp parallel",
        "    {",
        "        const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();",
        "        const int64_t share = programs / threads, rest = programs % threads;",
        "        const int64_t first = share * thread + (thread < rest ? thread : rest);",
        f"        {name}_run(words, first, first + share + (thread < rest));",
        "    }",
        "#else",
        f"    {name}_run(words, 0, programs);",
        "#endif",
    ]


def _threads(name: str) -> list[str]:
    """A C function that runs all programs at once, on a thread each.

    It returns false where there are not that many threads, and none has run.
    """
    return f"""struct {name}_together {{
    const uint64_t *words;
    int64_t next;
    int go;
    pthread_mutex_t lock;
    pthread_cond_t all_started;
}};

static void *{name}_thread(void *given) {{
    struct {name}_together *together = given;
    pthread_mutex_lock(&together->lock);
    while (!together->go) pthread_cond_wait(&together->all_started, &together->lock);
    const int64_t program = together->next++;
    const int go = together->go;
    pthread_mutex_unlock(&together->lock);
    if (go > 0) {name}_run(together->words, program, program + 1);
    return 0;
}}

static int {name}_at_once(const uint64_t *words, int64_t programs) {{
    struct {name}_together together = {{
        words, 0, 0, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER}};
    pthread_t *threads = (uint64_t)programs > SIZE_MAX / sizeof *threads
        ? 0 : malloc(programs * sizeof *threads);
    int64_t started = 0;
    while (threads && started < programs
           && !pthread_create(&threads[started], 0, {name}_thread, &together)) ++started;
    pthread_mutex_lock(&together.lock);
    together.go = started == programs ? 1 : -1;
    pthread_cond_broadcast(&together.all_started);
    pthread_mutex_unlock(&together.lock);
    for (int64_t thread = 0; thread < started; ++thread) pthread_join(threads[thread], 0);
    free(threads);
    return together.go > 0;
}}
""".splitlines()


def _with_memory(symbol: str, size: int, cleared: int) -> tuple[str, ...]:
    """A thread's call of the kernel's function with the memory that it needs."""
    return (
        f"char *memory = malloc({size + ALIGNMENT});",
        "if (!memory) {",
        f"    ((int32_t *)(uintptr_t)words[3])[0] = {OUT_OF_MEMORY};",
        "    return;",
        "}",
        (
            f"char *aligned = (char *)(((uintptr_t)memory + {ALIGNMENT - 1}) & "
            f"~(uintptr_t){ALIGNMENT - 1});"
        ),
        f"memset(aligned, 0, {cleared});",
        f"{symbol}(words, first, last, aligned);",
        "free(memory);",
    )
