"""Serve a tiny Llama with a paged cache and continuous batching, by the library's kernels.

    python examples/paged_server.py --device cuda

Requests arrive while others are computed. A step of the server admits those for which a place in
the batch and pages of the cache are free, computes their prompts, and then one token of all
requests in the batch; a request that is done gives its pages back. Keys and values lie in pages
that a table of each request names. Tokens are the most probable ones, or drawn from the most
probable ones that together have the probability ``top_p``.

The program prints each request, and generates all of them again, each alone, by PyTorch's operators
without a cache. It exits with 1 where tokens differ.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

import tilewright_kernels as tk

_FOLDER = str(Path(__file__).resolve().parent)
sys.path.insert(0, _FOLDER)

from tiny_llama.model import (
    HEAD,
    HEADS,
    KEY_HEADS,
    LAYERS,
    WIDTH,
    Weights,
    angles,
    decode,
    encode,
    load_weights,
    logits_of,
)

# the folder triton in there is not the module
sys.path[:] = [folder for folder in sys.path if folder != _FOLDER]


@dataclass
class Request:
    """A prompt, and what is generated after it.

    Attributes:
        name: printed.
        arrival: the step of the server before which it arrives.
        prompt: its tokens.
        limit: tokens to generate at most; one at least.
        stop: the token after which it is done; -1 for none.
        top_p: the probability of the tokens that are drawn from; 0 takes the most probable one.
        seed: of the draws.
        tokens: those generated so far.
        pages: those of the cache that it has.
        began, ended: steps of the server.
    """

    name: str
    arrival: int
    prompt: list[int]
    limit: int
    stop: int = -1
    top_p: float = 0.0
    seed: int = 0
    tokens: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    began: int = -1
    ended: int = -1

    def draws(self) -> Iterator[float]:
        """Return numbers from 0 to 1, one for each token."""
        generator = random.Random(self.seed)
        while True:
            yield generator.random()

    @property
    def is_done(self) -> bool:
        """Return whether there is nothing left to generate."""
        return len(self.tokens) == self.limit or self.tokens[-1:] == [self.stop]


class Server:
    """A model, a cache of pages, and the requests that it works on.

    Args:
        weights: of the model.
        pages: of the cache.
        page: tokens of a page.
        batch: requests that are computed together at most.
    """

    def __init__(self, weights: Weights, pages: int = 24, page: int = 16, batch: int = 4) -> None:
        self._weights, self._page, self._batch = weights, page, batch
        self._device = weights["norm"].device
        shape = LAYERS, 2, pages, page, KEY_HEADS, HEAD
        self._cache = torch.zeros(shape, device=self._device)
        self._free = list(range(pages))
        self._waiting: deque[Request] = deque()
        self._active: list[tuple[Request, Iterator[float]]] = []
        self.steps = 0

    @property
    def is_idle(self) -> bool:
        """Return whether all requests are done."""
        return not self._waiting and not self._active

    def submit(self, request: Request) -> None:
        """Add a request to those that wait.

        Raises:
            ValueError: it needs more pages than there are.
        """
        if self._pages_of(request) > self._cache.shape[2]:
            raise ValueError(f"{request.name} needs more pages than the cache has")
        self._waiting.append(request)

    def step(self) -> list[Request]:
        """Admit requests, compute a token of each, and return those that are done."""
        while self._waiting and len(self._active) < self._batch:
            request = self._waiting[0]
            if len(self._free) < self._pages_of(request):
                break
            self._waiting.popleft()
            request.pages = [self._free.pop() for _ in range(self._pages_of(request))]
            request.began = self.steps
            self._active.append((request, request.draws()))
            self._extend([self._active[-1]], [request.prompt])
        going = [each for each in self._active if not each[0].is_done]
        if going:
            self._extend(going, [request.tokens[-1:] for request, _ in going])
        done = [request for request, _ in self._active if request.is_done]
        self._active = [each for each in self._active if not each[0].is_done]
        for request in done:
            self._free += request.pages
            request.pages, request.ended = [], self.steps
        self.steps += 1
        return done

    def _pages_of(self, request: Request) -> int:
        return -(-(len(request.prompt) + request.limit) // self._page)

    def _extend(
        self, requests: Sequence[tuple[Request, Iterator[float]]], rows: Sequence[list[int]]
    ) -> None:
        """Compute rows of tokens, of the same length, and add a token to each request."""
        tokens = torch.tensor(rows, device=self._device)
        begins = [
            len(request.prompt) + len(request.tokens) - len(row)
            for (request, _), row in zip(requests, rows, strict=True)
        ]
        most = max(len(request.pages) for request, _ in requests)
        table = torch.tensor(
            [request.pages + [0] * (most - len(request.pages)) for request, _ in requests],
            device=self._device,
            dtype=torch.int32,
        )
        positions = torch.tensor(begins, device=self._device)[:, None]
        positions = positions + torch.arange(tokens.shape[1], device=self._device)
        logits = self._logits(tokens, positions, table)
        found = tk.argmax(logits, -1)
        if any(request.top_p for request, _ in requests):
            kept = [
                tk.top_p(tk.softmax(row), request.top_p)
                for row, (request, _) in zip(logits, requests, strict=True)
            ]
            drawn = [
                torch.searchsorted(tk.cumsum(row), torch.tensor(next(draws), device=row.device))
                for row, (_, draws) in zip(kept, requests, strict=True)
            ]
            is_drawn = torch.tensor([r.top_p > 0 for r, _ in requests], device=self._device)
            found = torch.where(is_drawn, torch.stack(drawn), found)
        for (request, _), token in zip(requests, found.tolist(), strict=True):
            request.tokens.append(token)

    def _logits(self, tokens: Tensor, positions: Tensor, table: Tensor) -> Tensor:
        """Return the logits after the last token of each row, and store keys and values."""
        weights, (batch, length) = self._weights, tokens.shape
        cos, sin = angles(positions)
        pages = table.gather(1, positions // self._page)
        places = (pages * self._page + positions % self._page).flatten()
        lengths = (positions[:, -1] + 1).int()
        x = tk.embedding(tokens, weights["embedding"])
        y = tk.rms_norm(x, weights["0.norm_1"])
        for layer in range(LAYERS):
            own = {name: weights[f"{layer}.{name}"] for name in ("qkv", "out", "gate_up", "down")}
            heads = tk.matmul(y, own["qkv"]).view(batch, length, HEADS + 2 * KEY_HEADS, HEAD)
            q, k, v = heads.split((HEADS, KEY_HEADS, KEY_HEADS), dim=2)
            for cache, rows in zip(self._cache[layer], (tk.rotary(k, cos, sin), v), strict=True):
                cache.view(-1, KEY_HEADS, HEAD)[places] = rows.reshape(-1, KEY_HEADS, HEAD)
            mixed = tk.attention_with_kv_cache(
                tk.rotary(q, cos, sin), *self._cache[layer], lengths, table, causal=True
            )
            mixed = tk.matmul(mixed.reshape(batch, length, WIDTH), own["out"])
            y, x = tk.add_rms_norm(mixed, x, weights[f"{layer}.norm_2"])
            gate, up = tk.matmul(y, own["gate_up"]).chunk(2, dim=-1)
            mixed = tk.matmul(tk.swiglu(gate, up), own["down"])
            after = "norm" if layer == LAYERS - 1 else f"{layer + 1}.norm_1"
            y, x = tk.add_rms_norm(mixed, x, weights[after])
        return tk.matmul(y[:, -1], weights["embedding"].T)


def serve(server: Server, requests: Sequence[Request]) -> list[Request]:
    """Submit requests as they arrive, and return them in the order in which they are done."""
    coming, done = deque(sorted(requests, key=lambda each: each.arrival)), []
    with torch.no_grad(), tk.use_defaults(invariant=True):  # a row's bits are those it has alone
        while coming or not server.is_idle:
            while coming and coming[0].arrival <= server.steps:
                server.submit(coming.popleft())
            done += server.step()
    return done


@torch.no_grad()
def generate(weights: Weights, request: Request) -> list[int]:
    """Return the tokens of a request by PyTorch's operators, without a cache."""
    tokens, draws = list(request.prompt), request.draws()
    while len(tokens) < len(request.prompt) + request.limit and (
        len(tokens) == len(request.prompt) or tokens[-1] != request.stop
    ):
        given = torch.tensor([tokens], device=weights["norm"].device)
        logits = logits_of(weights, given)[0, -1]
        if request.top_p == 0:
            tokens.append(int(logits.argmax()))
            continue
        probabilities, order = torch.softmax(logits, -1).sort(descending=True)
        is_kept = probabilities.cumsum(-1) - probabilities < request.top_p
        kept = torch.zeros_like(probabilities).scatter(0, order, probabilities * is_kept)
        bound = next(draws) * float(kept.sum())
        tokens.append(int(torch.searchsorted(kept.cumsum(-1), torch.tensor(bound).to(kept))))
    return tokens[len(request.prompt) :]


def example_requests(limit: int) -> list[Request]:
    """Return requests of several lengths, of which not all fit at once."""
    dot = encode(".")[0]
    return [
        Request("greedy", 0, encode("The following "), limit),
        Request("first sentence", 0, encode("A function definition "), 2 * limit, stop=dot),
        Request("drawn", 1, encode("If the "), limit, top_p=0.8, seed=1),
        Request("short", 2, encode("class"), limit // 4 or 1),
        Request("waits", 3, encode("An object is "), limit, top_p=0.9, seed=2),
        Request("one token", 5, encode("Exceptio"), 1),
        Request("late", limit, encode("The statement "), limit),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--limit", type=int, default=64, help="tokens of a request")
    given = parser.parse_args(arguments)
    torch.set_float32_matmul_precision("highest")
    weights = load_weights(given.device)
    server, start = Server(weights), time.perf_counter()
    done = serve(server, example_requests(given.limit))
    seconds = time.perf_counter() - start
    wrong = []
    for request in done:
        print(f"{request.name}: arrived {request.arrival}, steps {request.began}-{request.ended}")
        print(f"    {decode(request.prompt + request.tokens)!r}")
        if generate(weights, request) != request.tokens:
            wrong.append(request.name)
    count = sum(len(request.tokens) for request in done)
    print(f"{count} tokens in {server.steps} steps and {seconds:.1f} s")
    print(f"WRONG: other tokens than PyTorch's: {', '.join(wrong)}" if wrong else "right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
