"""Export of kernels to C: device code, and functions that load and launch it by the driver."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import BackendError
from tilewright.plugins.manifest import CodeObject, CProgram, Parameter, Target
from tilewright.runtime.arguments.c_interface import c_parameters, comment, header, words
from tilewright.runtime.launch.grid import MAX_EXTENT
from tilewright_nvidia.host.ahead_of_time import assembled

#: Bytes of dynamic shared memory that a kernel may use without opting in to more.
_SHARED_UNASKED = 48 << 10
_BYTES_A_LINE = 24


def export(
    name: str, code: CodeObject, parameters: Sequence[Parameter], target: Target
) -> CProgram:
    """Return ``name.cubin``, ``name.h``, and ``name_launch.c``, which embeds the cubin.

    The C file needs ``cuda.h`` and ``-lcuda``.

    Raises:
        BackendError: the kernel needs more than its arguments at launch, or no assembler is
            available.
    """
    if code.metadata.get("tensor_maps"):
        raise BackendError(
            f"kernel {name} takes maps of tensors for the TMA unit, which its launcher makes: "
            "compile it with --option asynchronous=False"
        )
    if code.metadata.get("launch_pdl"):
        raise BackendError(
            f"kernel {name} overlaps with the kernel before it, which its launcher asks for: "
            "compile it without launch_pdl"
        )
    cooperative = bool(code.metadata.get("cooperative"))
    device_code = assembled(code, target) or code.binary
    symbol, threads, shared = (
        str(code.metadata["kernel"]),
        32 * int(code.metadata["num_warps"]),
        int(code.metadata["shared"]),
    )
    blocks, given = int(code.metadata.get("cluster", 1)), c_parameters(parameters)
    grid_x = f"{blocks} * grid_x" if blocks > 1 else "grid_x"
    launched = ", ".join(
        (
            "CUfunction function",
            "CUstream stream",
            "uint32_t grid_x",
            "uint32_t grid_y",
            "uint32_t grid_z",
            *(each.declaration for each in given),
        )
    )
    loaded = "CUmodule *module, CUfunction *function"
    said = (
        f"Load kernel {name}, compiled for {target.arch}, in the current context; "
        "cuModuleUnload(*module) lets go of it."
    )
    lines = [
        *comment(said),
        f"CUresult {name}_load({loaded});",
        "",
        *comment(
            "Launch it on a grid of programs; on an empty one, nothing. Addresses are "
            "the device's.",
            given,
        ),
        f"CUresult {name}_launch({launched});",
    ]
    if cooperative:
        requirements = (
            "Write how many programs the current context's device holds at once. All programs of a "
            "launch run at once: one of more programs is refused with "
            "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE. Launch at most so many, and let each do the "
            "work of several in a loop."
        )
        lines += [
            "",
            *comment(requirements),
            f"CUresult {name}_resident(CUfunction function, int *programs);",
        ]
    size = max(1, len(given))
    rows = [
        device_code[start : start + _BYTES_A_LINE]
        for start in range(0, len(device_code), _BYTES_A_LINE)
    ]
    body = [
        f'#include "{name}.h"',
        "",
        "#include <string.h>",
        "",
        "static const unsigned char image[] = {",
        *(f"    {', '.join(map(str, row))}," for row in rows),
        "};",
        "",
        f"CUresult {name}_load({loaded}) {{",
        "    CUresult result = cuModuleLoadData(module, image);",
        "    if (result != CUDA_SUCCESS) return result;",
        f'    result = cuModuleGetFunction(function, *module, "{symbol}");',
    ]
    if shared > _SHARED_UNASKED:
        body.append(
            "    if (result == CUDA_SUCCESS) result = cuFuncSetAttribute(*function, "
            f"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, {shared});"
        )
    body += [
        "    if (result != CUDA_SUCCESS) cuModuleUnload(*module);",
        "    return result;",
        "}",
        "",
        f"CUresult {name}_launch({launched}) {{",
        "    if (grid_x == 0 || grid_y == 0 || grid_z == 0) return CUDA_SUCCESS;",
        f"    if (grid_x > {(MAX_EXTENT - 1) // blocks}u) return CUDA_ERROR_INVALID_VALUE;",
        f"    uint64_t words[{size}] = {{0}};",
        f"    void *arguments[{size}];",
        *(f"    {statement}" for statement in words(given, "words")),
        (
            f"    for (int position = 0; position < {size}; ++position) arguments[position] = "
            "&words[position];"
        ),
    ]
    if cooperative:
        body += [
            "    CUlaunchAttribute together;",
            "    memset(&together, 0, sizeof together);",
            "    together.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;",
            "    together.value.cooperative = 1;",
            *(f"    {line}" for line in _config(grid_x, "grid_y", "grid_z", threads, shared)),
            "    config.hStream = stream;",
            "    config.attrs = &together;",
            "    config.numAttrs = 1;",
            "    return cuLaunchKernelEx(&config, function, arguments, 0);",
            "}",
            "",
            f"CUresult {name}_resident(CUfunction function, int *programs) {{",
            *(f"    {line}" for line in _resident(blocks, threads, shared)),
        ]
    else:
        body.append(
            f"    return cuLaunchKernel(function, {grid_x}, grid_y, grid_z, {threads}, 1, 1, "
            f"{shared}, stream, arguments, 0);"
        )
    body += ["}", ""]
    files = {
        f"{name}.cubin": device_code,
        f"{name}.h": header(name, ["cuda.h", "stdint.h"], lines).encode(),
        f"{name}_launch.c": "\n".join(body).encode(),
    }
    return CProgram(files)


def _config(x: str, y: str, z: str, threads: int, shared: int) -> tuple[str, ...]:
    """Return C statements that declare a launch configuration, without stream and attributes."""
    return (
        "CUlaunchConfig config;",
        "memset(&config, 0, sizeof config);",
        f"config.gridDimX = {x}, config.gridDimY = {y}, config.gridDimZ = {z};",
        f"config.blockDimX = {threads}, config.blockDimY = config.blockDimZ = 1;",
        f"config.sharedMemBytes = {shared};",
    )


def _resident(blocks: int, threads: int, shared: int) -> tuple[str, ...]:
    """Return C statements that count the CTAs or clusters that fit the device at once."""
    if blocks > 1:
        return (
            *_config(str(blocks), "1", "1", threads, shared),
            "return cuOccupancyMaxActiveClusters(programs, function, &config);",
        )
    return (
        "CUdevice device;",
        "int each = 0, processors = 0;",
        "CUresult result = cuCtxGetDevice(&device);",
        (
            "if (result == CUDA_SUCCESS) result = cuDeviceGetAttribute(&processors, "
            "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);"
        ),
        (
            "if (result == CUDA_SUCCESS) result = "
            f"cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, function, {threads}, {shared});"
        ),
        "*programs = each * processors;",
        "return result;",
    )
