"""PyTorch's Inductor: what it writes for parts of 20 models; :mod:`corpus.recipes.inductor` has it
write.
"""

import functools
import re

from corpus.recipes import inductor

DISTRIBUTION = "torch"
MODULES = ("corpus.recipes.inductor",)
#: The code is generated, not launched: no device is pretended beside the recipe's own.
PRETENDS = False


def run(part):
    from tilewright.compat.triton import recording

    for name, kernel in inductor.kernels(part).items():
        recording.write(
            {
                **facts(kernel),
                "case": part,
                "module": "corpus.recipes.inductor",
                "kernel": f"{part}.{name}",
            }
        )


def facts(kernel):
    """What Inductor would compile of a kernel: the first of its configurations."""
    meta, config = kernel.triton_meta, kernel.configs[0]
    sizes = {
        name: int(size)
        for name, size in re.findall(r"(\w+numel) = (\d+)$", kernel.fn.src, re.MULTILINE)
    }
    constants = {**meta["constants"], **config.kwargs}
    arguments = []
    for number, (name, type_) in enumerate(meta["signature"].items()):
        argument = {"name": name, "type": type_}
        if type_ == "constexpr":
            argument["value"] = constants.get(name, constants.get((number,)))
        elif not type_.startswith("*"):
            argument["value"] = sizes.get(name)
        if (number,) in meta["configs"][0]:
            argument["aligned"] = True
        arguments.append(argument)
    blocks = (
        -(-sizes.get("xnumel", 1) // config.kwargs.get("XBLOCK", 1)),
        -(-sizes.get("ynumel", 1) // config.kwargs.get("YBLOCK", 1)),
    )
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return {
        "arguments": arguments,
        "options": options,
        "grid": [*blocks, 1],
        "configurations": len(kernel.configs),
    }


CASES = {part: functools.partial(run, part) for part in inductor.PARTS}
