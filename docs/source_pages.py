"""Pages with the source of ``examples``, for readers who have the wheels but not the repository.

Each page shows the files of one example, and links to an archive of them.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"

#: File types that a page shows -> name for the highlighter.
LANGUAGES = {".py": "py", ".toml": "toml", ".md": "md", ".txt": "text"}

#: All files have this time in archives, so that the archives of two builds are equal.
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Example:
    """An example, and where the site shows its source.

    Attributes:
        page: the page's path without suffix.
        summary: the page's first sentence, in Markdown.
        paths: files and folders in ``examples``; the first one gives the archive's name.
    """

    page: str
    summary: str
    paths: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.paths[0].removesuffix(".py")

    def files(self) -> list[Path]:
        """Return the files with text that belong to the example, without those of its tests."""
        found: list[Path] = []
        for path in self.paths:
            top = EXAMPLES / path
            found += [top] if top.is_file() else sorted(top.rglob("*"))
        return [file for file in found if file.suffix in LANGUAGES and "tests" not in file.parts]


SOURCES = (
    Example(
        "sources/backend_c",
        "The example backend `backend_c` translates Tile IR to C. See "
        "[Write a backend](../vendors/index.md) for a description of this backend.",
        ("backend_c",),
    ),
    Example(
        "sources/backend_opencl",
        "The example backend `backend_opencl` translates Tile IR to OpenCL C. See "
        "[Write a backend](../vendors/index.md) for a description of this backend.",
        ("backend_opencl",),
    ),
    Example(
        "sources/backend_lyra",
        "The example backend `backend_lyra` is for a GPU, and uses the "
        "[GPU toolkit](../developers/toolkit/index.md), the part of Tilewright that all GPU "
        "backends share. See [A GPU backend](../vendors/gpu_backend.md) for a description of this "
        "backend.",
        ("backend_lyra",),
    ),
    Example(
        "sources/llama_block",
        "This program trains one block of a Llama model. See "
        "[Example programs](../kernels/programs.md) for a description of this program.",
        ("llama_block.py",),
    ),
    Example(
        "sources/paged_server",
        "This program serves requests to a language model with a paged key-value cache. See "
        "[Example programs](../kernels/programs.md) for a description of this program.",
        ("paged_server.py", "tiny_llama"),
    ),
    Example(
        "sources/train_transformer",
        "This program trains a transformer that consists of four kernels, with PyTorch or JAX. See "
        "[Gradients](../tutorials/gradients.md) for a description of this program.",
        ("train_transformer.py", "transformer"),
    ),
)


def files() -> dict[str, str | bytes]:
    """Path on the site -> content."""
    return {
        f"{example.page}{suffix}": content
        for example in SOURCES
        for suffix, content in ((".md", _page(example)), (".zip", _archive(example)))
    }


def _page(example: Example) -> str:
    archive = example.page.rpartition("/")[2] + ".zip"
    parts = [
        "---\nsearch:\n  exclude: true\n---\n",
        f"# Source of {example.name}\n",
        f"{example.summary} The archive [{archive}]({archive}) contains all files of this "
        "example.\n",
    ]
    for file in example.files():
        text = file.read_text().rstrip()
        if text:
            fence = "````" if "```" in text else "```"
            parts += [
                f"## examples/{file.relative_to(EXAMPLES)}\n",
                f"{fence}{LANGUAGES[file.suffix]}\n{text}\n{fence}\n",
            ]
    return "\n".join(parts)


def _archive(example: Example) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in example.files():
            entry = zipfile.ZipInfo(str(file.relative_to(EXAMPLES)), _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return packed.getvalue()
