"""The GPU that programs see on a machine without one."""

import pytest

torch = pytest.importorskip("torch")


def test_no_two_answers_are_one_function():
    """PyTorch's compiler, where a program imports it meanwhile, lists the functions of
    ``torch.cuda`` and takes each for one name's."""
    from tilewright.compat.host_tensors import HostTensors

    with HostTensors():
        answers = [
            torch.cuda.synchronize,
            torch.cuda.empty_cache,
            torch.cuda.init,
            torch.cuda.set_device,
            torch.cuda.manual_seed,
        ]
    assert len(set(answers)) == len(answers)
