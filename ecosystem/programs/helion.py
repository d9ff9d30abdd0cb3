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
