"""The library's attention against SDPA (cuDNN, flash), and decoding against vLLM and SGLang.

    python benchmarks/kernels/attention.py [forward backward decode mla blocks] [--quick]
    python benchmarks/kernels/attention.py --device cpu

A line for each case: our time on the device, the host's time of a call, the rate, what rivals take
of our time, the maximum error of 512 rows against float64, and whether 20 launches on warm caches
into poisoned memory have the same bits. Causal cases count half of the operations. vLLM and SGLang
are rivals where they can be imported. ``blocks`` measures other block sizes than those of the rule.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from device_times import DeviceTimer
from results import Result, Results

import tilewright_kernels as tk
from tilewright_kernels.attention import kv_cache, operations
from tilewright_kernels.attention.blocks import AttentionBlocks
from tilewright_kernels.attention.operations import ATTENTION_BACKWARD
from tilewright_kernels.operations.prepared_calls import PreparedCalls

#: heads, heads of k, dims
HEADS = ((32, 32, 64), (16, 16, 128), (64, 8, 128))
#: rows that all sequences of a batch have together
TOKENS = 16384
LENGTHS = (2048, 8192, 32768)
#: Terabytes per second and TFLOP/s of the data sheet, by a part of the device's name.
ROOFS = {"H200": (4.8, 989.0), "H100": (3.35, 989.0)}

Call = Callable[[], Any]


class Clock:
    """Times of calls, in microseconds.

    Args:
        device: ``"cuda"`` or ``"cpu"``.
        seconds: how long each call is measured at most.
    """

    def __init__(self, device: str, seconds: float) -> None:
        self.device, self.seconds = device, seconds
        self._timer = DeviceTimer() if device == "cuda" else None

    def medians(self, calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
        """Return the median of each call, which alternate."""
        for call in calls.values():
            call()
            call()
        self.wait()
        times: dict[str, list[float]] = {name: [] for name in calls}
        start = time.perf_counter()
        for number in range(rounds):
            order = list(calls) if number % 2 == 0 else list(reversed(calls))
            for name in order:
                times[name].append(self._one(name, calls[name]))
            if time.perf_counter() - start > self.seconds and number >= 3:
                break
        return {name: statistics.median(taken) for name, taken in times.items()}

    def _one(self, name: str, call: Call) -> float:
        if self._timer is not None:
            return self._timer.seconds(name, call) * 1e6
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6

    def host(self, call: Call) -> float:
        """Return the host's time of a call."""
        self.wait()
        start = time.perf_counter()
        for _ in range(20):
            call()
        taken = (time.perf_counter() - start) / 20 * 1e6
        self.wait()
        return taken

    def wait(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()


def roofs(device: str) -> tuple[float, float]:
    """Return terabytes per second and TFLOP/s of a device, infinite where they are unknown."""
    name = torch.cuda.get_device_name() if device == "cuda" else ""
    return next((each for part, each in ROOFS.items() if part in name), (math.inf, math.inf))


def same_bits(call: Callable[..., Any], out: torch.Tensor, launches: int = 20) -> bool:
    """Return whether launches into poisoned memory have the same bits."""
    out.fill_(math.nan)
    call(out=out)
    expected = out.clone()
    for _ in range(launches):
        out.fill_(math.nan)
        call(out=out)
        if not torch.equal(out, expected):
            return False
    return True


def error_of(out: torch.Tensor, q: Any, k: Any, v: Any, causal: bool) -> float:
    """Return the maximum error of the last 512 rows of the first head of the last sequence."""
    exact = tk.attention_reference(
        *(each[-1:, start:, :1].double() for each, start in ((q, -512), (k, 0), (v, 0))),
        causal=causal,
    )
    return float((out[-1:, -512:, :1].double() - exact).abs().max())


def sdpa(backend: str, q: Any, k: Any, v: Any, causal: bool) -> Call:
    """Return PyTorch's attention by a backend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = {
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
    }[backend]
    heads = [each.transpose(1, 2) for each in (q, k, v)]
    grouped = q.shape[2] != k.shape[2]

    def call() -> Any:
        with sdpa_kernel(kind):
            return torch.nn.functional.scaled_dot_product_attention(
                *heads, is_causal=causal, enable_gqa=grouped
            )

    return call


class Report:
    """Rows of results, a line each."""

    def __init__(self, device: str) -> None:
        self.results = Results()
        self.bandwidth, self.rate = roofs(device)

    def add(
        self, name: str, times: Mapping[str, float], work: float, unit: str, **facts: Any
    ) -> None:
        """Add a row; ``work`` is FLOP or bytes."""
        ours = times["ours"]
        rate = work / ours / 1e6
        roof = self.rate if unit == "TFLOP/s" else self.bandwidth
        share = "" if math.isinf(roof) else f" ({rate / roof:.0%} of roof)"
        ratios = {key: taken / ours for key, taken in times.items() if key != "ours"}
        is_bound_by_operations = unit == "TFLOP/s"
        self.results.add(
            Result(
                "attention",
                name,
                ours * 1e-6,
                None if is_bound_by_operations else work,
                work if is_bound_by_operations else None,
                {key: taken * 1e-6 for key, taken in times.items() if key != "ours"},
                facts.get("error"),
                facts.get("bits"),
            )
        )
        shown = "  ".join(f"{key} {ratio:.3f}" for key, ratio in ratios.items())
        rest = "  ".join(
            f"{key} {each:.2e}" if isinstance(each, float) else f"{key} {each}"
            for key, each in facts.items()
        )
        print(f"{name}: {ours:.1f} us, {rate:.2f} {unit}{share}; {shown}; {rest}", flush=True)

    def means(self) -> None:
        """Print the geometric mean and the minimum of each family's ratios."""
        for family in dict.fromkeys(row.case.split()[0] for row in self.results.rows):
            rows = [row for row in self.results.rows if row.case.split()[0] == family]
            for rival in dict.fromkeys(name for row in rows for name in row.rivals):
                found = [row.rivals[rival] / row.seconds for row in rows if rival in row.rivals]
                if found:
                    mean = math.exp(statistics.fmean(map(math.log, found)))
                    print(f"{family} of {rival}: mean {mean:.3f}, minimum {min(found):.3f}")


def available(calls: dict[str, Call]) -> dict[str, Call]:
    """Return the calls that run, and print why others do not."""
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = call
        except Exception as error:
            if name == "ours":
                raise
            print(f"  {name}: {type(error).__name__}: {str(error)[:120]}")
    return found


def forward(clock: Clock, report: Report, quick: bool, dtype: torch.dtype) -> None:
    for heads, key_heads, dims in HEADS:
        for length in LENGTHS[:1] if quick else LENGTHS:
            for causal in (False, True):
                batch = max(TOKENS // length, 1)
                q, k, v = (
                    torch.randn(batch, length, each, dims, device="cuda", dtype=dtype)
                    for each in (heads, key_heads, key_heads)
                )
                out = torch.empty_like(q)

                def ours(out: Any = out, q: Any = q, k: Any = k, v: Any = v, c: bool = causal):
                    return tk.attention(q, k, v, causal=c, out=out)

                ours()
                error = error_of(out, q, k, v, causal)
                bits = same_bits(ours, out, 20 if length < 32768 else 5)
                calls = available(
                    {"ours": ours}
                    | {name: sdpa(name, q, k, v, causal) for name in ("cudnn", "flash")}
                )
                work = 4 * batch * heads * length**2 * dims / (2 if causal else 1)
                report.add(
                    f"forward h{heads}/{key_heads} d{dims} {batch}x{length}"
                    f"{' causal' if causal else ''}",
                    clock.medians(calls, 20), work, "TFLOP/s", host=clock.host(ours),
                    error=error, bits=bits,
                )  # fmt: skip


def backward(clock: Clock, report: Report, quick: bool, dtype: torch.dtype) -> None:
    for heads, key_heads, dims in HEADS:
        for length in LENGTHS[:1] if quick else LENGTHS:
            for causal in (False, True):
                batch = max(TOKENS // length, 1)
                q, k, v = (
                    torch.randn(batch, length, each, dims, device="cuda", dtype=dtype)
                    for each in (heads, key_heads, key_heads)
                )
                dout = torch.randn_like(q)
                out, lse = tk.attention(q, k, v, causal=causal, return_lse=True)

                def ours(
                    deterministic: bool = False,
                    given: Any = (q, k, v, out, lse, dout),
                    c: bool = causal,
                ) -> Any:
                    q, k, v, out, lse, dout = given
                    return ATTENTION_BACKWARD(
                        dout, None, q, k, v, out, lse, None, None, None, None, None, 0, 0,
                        q.shape[-1] ** -0.5, 0.0, -1, 0 if c else -1, None, deterministic,
                    )  # fmt: skip

                deterministic = functools.partial(ours, True)
                calls: dict[str, Call] = {"ours": ours, "deterministic": deterministic}
                tracked = [each.detach().requires_grad_() for each in (q, k, v)]
                for name in ("cudnn", "flash"):
                    try:
                        attended = sdpa(name, *tracked, causal)()
                    except RuntimeError as error:
                        print(f"  {name}: {str(error)[:120]}")
                        continue
                    calls[name] = lambda attended=attended, tracked=tracked, dout=dout: (
                        torch.autograd.grad(
                            attended, tracked, dout.transpose(1, 2), retain_graph=True
                        )
                    )
                found, again = deterministic()[:3], deterministic()[:3]
                bits = all(torch.equal(one, two) for one, two in zip(found, again, strict=True))
                found = ours()[:3]
                wrong = math.nan
                if "flash" in calls:
                    others = calls["flash"]()
                    wrong = max(
                        float((one.float() - two.float()).norm() / two.float().norm())
                        for one, two in zip(found, others, strict=True)
                    )
                work = 10 * batch * heads * length**2 * dims / (2 if causal else 1)
                report.add(
                    f"backward h{heads}/{key_heads} d{dims} {batch}x{length}"
                    f"{' causal' if causal else ''}",
                    clock.medians(available(calls), 20), work, "TFLOP/s", host=clock.host(ours),
                    error=wrong, bits=bits,
                )  # fmt: skip


def decode(clock: Clock, report: Report, quick: bool, dtype: torch.dtype) -> None:
    dims, page = 128, 16
    for heads, key_heads in ((32, 8), (64, 8)):
        for batch, length in ((16, 8192), (128, 2048), (128, 8192))[: 1 if quick else 3]:
            count = batch * length // page
            q = torch.randn(batch, 1, heads, dims, device="cuda", dtype=dtype)
            k, v = (
                torch.randn(count, page, key_heads, dims, device="cuda", dtype=dtype)
                for _ in range(2)
            )
            table = torch.randperm(count, device="cuda").to(torch.int32).view(batch, -1)
            lengths = torch.full((batch,), length, device="cuda", dtype=torch.int32)
            out = torch.empty_like(q)

            def ours(out: Any = out, given: Any = (q, k, v, lengths, table)) -> Any:
                return tk.attention_with_kv_cache(*given, out=out)

            ours()
            keys, values = (
                each[table[-1].long()].reshape(1, length, key_heads, dims)[:, :, :1]
                for each in (k, v)
            )
            exact = tk.attention_reference(q[-1:, :, :1].double(), keys.double(), values.double())
            error = float((out[-1:, :, :1].double() - exact).abs().max())
            calls = available({"ours": ours} | decoding_rivals(q, k, v, table, lengths, length))
            report.add(
                f"decode h{heads}/{key_heads} d{dims} {batch}x{length}",
                clock.medians(agreeing(calls, out), 30), 2 * k.numel() * k.element_size(), "TB/s",
                host=clock.host(ours), error=error, bits=same_bits(ours, out),
            )  # fmt: skip


def decoding_rivals(
    q: Any, k: Any, v: Any, table: Any, lengths: Any, length: int
) -> dict[str, Call]:
    """Return the calls of vLLM's and SGLang's Triton kernels, where they can be imported."""
    batch, _, heads, dims = q.shape
    key_heads, scale, found = k.shape[2], q.shape[-1] ** -0.5, {}
    queries, out = q[:, 0], torch.empty_like(q[:, 0])
    # vLLM's server divides keys only where its kernel would have too few programs
    undivided = 128 // key_heads
    unified = imported("vllm", "vllm.v1.attention.ops.triton_unified_attention")
    if unified is not None:
        starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda")
        parts = {
            "seq_threshold_3D": undivided,
            "num_par_softmax_segments": 16,
            "softmax_segm_output": torch.empty(undivided, heads, 16, dims, device="cuda"),
            "softmax_segm_max": torch.empty(undivided, heads, 16, device="cuda"),
            "softmax_segm_expsum": torch.empty(undivided, heads, 16, device="cuda"),
        }

        def vllm() -> Any:
            unified.unified_attention(
                queries, k, v, out, starts, 1, lengths, length, scale, True, (-1, -1), table, 0.0,
                None, None, None, **parts,
            )  # fmt: skip
            return out

        found["vllm"] = vllm
    return found | sglang_decoding(
        queries, k.view(-1, key_heads, dims), v.view(-1, key_heads, dims), table, length
    )


def sglang_parts(batch: int, heads: int, key_heads: int, length: int) -> int:
    """Return into how many parts SGLang's server divides the keys of equally long sequences.

    It wants as many programs as there are SMs, times the logarithm of how many 64 keys there are.
    A program has up to 16 heads that share keys. By default there are at most 8 parts, but of
    latent heads as many as SMs.
    """
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    wanted = int(processors * max(math.log2(length / 64), 1.0))
    programs = batch * math.ceil(heads / min(max(heads // key_heads, 1), 16))
    most = 8
    if key_heads == 1:
        most = max(most, min(_power_of_two(processors), _power_of_two(math.ceil(length / 32))))
    return min(math.ceil(wanted / programs), most)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def sglang_decoding(
    queries: Any, keys: Any, values: Any, table: Any, length: int
) -> dict[str, Call]:
    """Return the call of SGLang's Triton kernel, where it can be imported.

    Args:
        queries: of (batch, heads, dims).
        keys, values: of (rows of all pages, heads of k, dims).
        table: the pages of each sequence.
    """
    module = imported("sglang", "sglang.srt.layers.attention.triton_ops.decode_attention")
    if module is None:
        return {}
    (batch, heads, dims), page = queries.shape, keys.shape[0] // table.numel()
    rows = (table.long()[:, :, None] * page + torch.arange(page, device="cuda")).flatten()
    starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda") * length
    parts = sglang_parts(batch, heads, keys.shape[1], length)
    splits = torch.full((batch,), parts, dtype=torch.int32, device="cuda")
    out = torch.empty(batch, heads, values.shape[-1], device="cuda", dtype=queries.dtype)
    parts_out = torch.empty(batch, heads, parts, values.shape[-1], device="cuda")
    parts_lse = torch.empty(batch, heads, parts, device="cuda")
    # later releases take scales of 8-bit caches
    accepted = inspect.signature(module.decode_attention_fwd).parameters
    scales = {name: 1.0 for name in ("k_scale", "v_scale") if name in accepted}

    def sglang() -> Any:
        module.decode_attention_fwd(
            queries, keys, values, out, starts, rows, parts_out, parts_lse, splits, parts,
            dims**-0.5, **scales,
        )  # fmt: skip
        return out

    return {"sglang": sglang}


def agreeing(calls: dict[str, Call], out: torch.Tensor) -> dict[str, Call]:
    """Return the calls but those of rivals whose results are not ours, which are printed."""
    found = {}
    for name, call in calls.items():
        apart = 0.0 if name == "ours" else float((call().float() - out[:, 0].float()).abs().max())
        if apart < 2e-3:
            found[name] = call
        else:
            print(f"  {name}: its results are {apart:.1e} from ours")
    return found


def imported(name: str, module: str) -> Any:
    """Return a rival's module; None, with the reason printed, where it cannot be imported."""
    try:
        return importlib.import_module(module)
    except (ImportError, KeyError) as error:
        print(f"  {name}: {type(error).__name__}: {error}")
        return None


def mla(clock: Clock, report: Report, quick: bool, dtype: torch.dtype) -> None:
    page = 64
    for heads in (16, 128):
        for batch, length in ((16, 8192), (128, 4096))[: 1 if quick else 2]:
            count = batch * length // page
            q = torch.randn(batch, 1, heads, 576, device="cuda", dtype=dtype)
            cache = torch.randn(count, page, 576, device="cuda", dtype=dtype)
            table = torch.randperm(count, device="cuda").to(torch.int32).view(batch, -1)
            lengths = torch.full((batch,), length, device="cuda", dtype=torch.int32)
            out = torch.empty(batch, 1, heads, 512, device="cuda", dtype=dtype)

            def ours(out: Any = out, given: Any = (q, cache, 512, lengths, table)) -> Any:
                return tk.mla_decode(*given, out=out)

            ours()
            keys = cache[table[-1].long()].reshape(1, length, 1, 576).double()
            exact = tk.attention_reference(q[-1:, :, :1].double(), keys, keys[..., :512])
            error = float((out[-1:, :, :1].double() - exact).abs().max())
            rows = cache.view(-1, 1, 576)
            calls = {"ours": ours} | sglang_decoding(q[:, 0], rows, rows[..., :512], table, length)
            calls = agreeing(available(calls), out)
            report.add(
                f"mla h{heads} {batch}x{length}", clock.medians(calls, 30),
                cache.numel() * cache.element_size(), "TB/s",
                host=clock.host(ours), error=error, bits=same_bits(ours, out),
            )  # fmt: skip


#: Part of the library -> blocks by the rule's function: (M, N, warps, stages).
CANDIDATES = {
    "forward_blocks": (
        (128, 128, 8, 2), (128, 128, 8, 3), (256, 64, 16, 2), (256, 64, 16, 3), (128, 64, 8, 3),
        (128, 64, 8, 4), (128, 64, 8, 2),
    ),
    "fused_blocks": ((64, 128, 8, 2), (64, 128, 8, 3), (128, 128, 8, 2), (128, 128, 8, 3)),
    "key_blocks": (
        (64, 128, 8, 2), (32, 128, 8, 2), (32, 128, 8, 3), (32, 128, 4, 3), (64, 64, 4, 2),
        (64, 64, 8, 2), (128, 128, 8, 2),
    ),
    "query_blocks": (
        (128, 64, 8, 2), (128, 64, 8, 3), (128, 32, 8, 3), (128, 32, 4, 3), (64, 64, 4, 2),
        (128, 64, 4, 2), (64, 128, 4, 2), (128, 128, 8, 2),
    ),
    "decode_blocks": (
        (16, 64, 4, 3), (16, 64, 4, 4), (16, 32, 4, 4), (16, 128, 4, 2), (16, 128, 8, 2),
        (16, 64, 2, 3),
    ),
}  # fmt: skip


def blocks(clock: Clock, report: Report, quick: bool, dtype: torch.dtype) -> None:
    """Print the times of a pass with other block sizes than the rule's, which comes first."""
    for dims in (64, 128):
        heads = 2048 // dims
        q, k, v, dout = (
            torch.randn(4, 4096, heads, dims, device="cuda", dtype=dtype) for _ in range(4)
        )
        out, lse = tk.attention(q, k, v, causal=True, return_lse=True)
        pages = torch.randn(16 * 512, 16, 8, dims, device="cuda", dtype=dtype)
        table = torch.randperm(16 * 512, device="cuda").to(torch.int32).view(16, -1)
        query = torch.randn(16, 1, 64, dims, device="cuda", dtype=dtype)

        def backward_pass(
            deterministic: bool,
            given: Any = (dout, None, q, k, v, out, lse),
            d: int = dims,
        ) -> Any:
            rest = (None, None, None, None, None, 0, 0, d**-0.5, 0.0, -1, 0, None, deterministic)
            return ATTENTION_BACKWARD(*given, *rest)

        calls = {
            "forward_blocks": lambda q=q, k=k, v=v: tk.attention(q, k, v, causal=True),
            "fused_blocks": functools.partial(backward_pass, False),
            "key_blocks": functools.partial(backward_pass, True),
            "query_blocks": functools.partial(backward_pass, True),
            "decode_blocks": lambda given=(query, pages, pages, None, table): (
                tk.attention_with_kv_cache(*given)
            ),
        }
        for rule, candidates in CANDIDATES.items():
            module = kv_cache if rule == "decode_blocks" else operations
            own = getattr(module, rule)
            for sizes in (None, *candidates):
                found = None if sizes is None else AttentionBlocks(*sizes)
                setattr(module, rule, own if found is None else lambda *_, found=found: found)
                PreparedCalls.forget()
                try:
                    taken = clock.medians({"ours": calls[rule]}, 15)["ours"]
                    print(f"d{dims} {rule} {sizes or 'rule'}: {taken:.1f} us", flush=True)
                except Exception as error:
                    print(f"d{dims} {rule} {sizes}: {type(error).__name__}: {str(error)[:120]}")
            setattr(module, rule, own)
        PreparedCalls.forget()


def on_cpu(clock: Clock, report: Report) -> None:
    """Compare forward and backward with PyTorch's, both with one thread."""
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        for heads, length, dims in ((4, 1024, 64), (8, 2048, 64), (4, 1024, 128)):
            for causal in (False, True):
                q, k, v = (torch.randn(1, length, heads, dims).to(dtype) for _ in range(3))
                out = torch.empty_like(q)

                def ours(out: Any = out, q: Any = q, k: Any = k, v: Any = v, c: bool = causal):
                    return tk.attention(q, k, v, causal=c, out=out)

                given = [each.transpose(1, 2) for each in (q, k, v)]
                calls = {
                    "ours": ours,
                    "torch": lambda given=given, c=causal: (
                        torch.nn.functional.scaled_dot_product_attention(*given, is_causal=c)
                    ),
                }
                ours()
                work = 4 * heads * length**2 * dims / (2 if causal else 1)
                report.add(
                    f"forward {str(dtype)[6:]} h{heads} d{dims} {length}"
                    f"{' causal' if causal else ''}",
                    clock.medians(calls, 15), work, "TFLOP/s",
                    error=error_of(out, q, k, v, causal), bits=same_bits(ours, out),
                )  # fmt: skip


FAMILIES = {"forward": forward, "backward": backward, "decode": decode, "mla": mla}
OTHERS = {"blocks": blocks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES, *OTHERS], default=[])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--quick", action="store_true", help="the first size of each case alone")
    parser.add_argument("--seconds", type=float, default=0.2, help="for the times of a case")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    clock, report = Clock(options.device, options.seconds), Report(options.device)
    if options.device == "cpu":
        on_cpu(clock, report)
    else:
        torch.manual_seed(0)
        for family in options.families or FAMILIES:
            (FAMILIES | OTHERS)[family](clock, report, options.quick, getattr(torch, options.dtype))
            if options.json:
                report.results.write(options.json, options.device)
    report.means()
    if options.json:
        report.results.write(options.json, options.device)


if __name__ == "__main__":
    main()
