"""tritonparse: what it logs of compilations."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import triton
import triton.language as tl

DISTRIBUTION = "tritonparse"


@triton.jit
def doubled(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) * 2)


def case_compilations_are_logged(device):
    import tritonparse.structured_logging as logging

    with TemporaryDirectory() as folder:
        logging.init(folder)
        try:
            x = torch.ones(16, device=device)
            doubled[(1,)](x, torch.empty_like(x), BLOCK=16)
        finally:
            logging.clear_logging_config()
        lines = [
            line
            for path in Path(folder).rglob("*.ndjson*")
            for line in path.read_bytes().splitlines()
        ]
        assert any(b"doubled" in line for line in lines) and all(json.loads(line) for line in lines)
