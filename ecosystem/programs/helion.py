"""helion, which writes Triton: kernels of its language, compiled and run."""

import torch

from programs import close, random

DISTRIBUTION = "helion"


def case_pointwise_of_any_shape(device):
    import helion_kernels as kernels

    for shape in ((50, 70), (3, 129)):
        x, y = random(device, *shape), random(device, *shape, seed=1)
        close(kernels.scaled_sum(x, y, 2.5), x + 2.5 * y)


def case_softmax(device):
    import helion_kernels as kernels

    x = random(device, 10, 100)
    close(kernels.softmax(x), torch.softmax(x, 1))


def case_matrix_product(device):
    import helion_kernels as kernels

    x, y = random(device, 40, 50).half(), random(device, 50, 70).half()
    close(kernels.product(x, y), x.float() @ y.float(), 2e-2)


def case_atomic_sums(device):
    import helion_kernels as kernels

    x = random(device, 50, 70)
    close(kernels.row_sums(x), x.sum(0))


def case_the_written_program(device):
    import helion_kernels as kernels

    kernel = kernels.softmax.bind((random(device, 10, 100),))
    assert "@triton.jit" in kernel.to_triton_code(kernel.config_spec.default_config())


class _LaunchedError(Exception):
    """What a kernel would have been launched with."""

    def __init__(self, kernel, arguments, keywords):
        self.kernel, self.arguments, self.keywords = kernel, arguments, keywords


def case_a_configuration_is_compiled_before_it_is_tried(device):
    """As its autotuner does: the launch takes what was compiled, and it is not compiled again."""
    import helion
    import helion_kernels as kernels
    import triton
    from helion.runtime.precompile_shim import already_compiled, make_precompiler

    def grab(kernel, grid, *arguments, **keywords):
        raise _LaunchedError(kernel, arguments, keywords)

    x, y = random(device, 100, 70), random(device, 100, 70, seed=1)
    bound = kernels.scaled_sum.bind((x, y, 2.5))
    config = helion.Config(block_sizes=[16, 16], num_warps=8)
    compiled = bound.compile_config(config)
    prepared = []
    for _ in range(2):
        try:
            compiled(x, y, 2.5, _launcher=grab)
        except _LaunchedError as launch:
            prepared.append(
                make_precompiler(launch.kernel, config, bound)(*launch.arguments, **launch.keywords)
            )
        if len(prepared) == 1:
            assert prepared[0](False)
    assert prepared[1] is already_compiled
    told = []
    before = triton.knobs.runtime.jit_post_compile_hook
    triton.knobs.runtime.jit_post_compile_hook = lambda **facts: told.append(facts)
    try:
        close(compiled(x, y, 2.5), x + 2.5 * y)
    finally:
        triton.knobs.runtime.jit_post_compile_hook = before
    assert not told
