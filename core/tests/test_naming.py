"""The naming rules: the field's words, one name for one thing, short lines, no operation lists."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from token import NAME
from typing import NamedTuple

import pytest
from source_trees import nodes_of, tree_of

from tilewright.ir.core import Operation
from tilewright.simt.dialect.ops import SIMT_TABLE

ROOT = Path(__file__).resolve().parents[2]
#: Modules of the Triton shim, which have the names that Triton's have.
SHIM = "tilewright/compat/triton/"


class Source(NamedTuple):
    """A module: the folder of its distribution, and its path and its text in there."""

    distribution: str
    path: str
    text: str

    @property
    def stem(self) -> str:
        return Path(self.path).stem

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        return nodes_of(self.text)


@functools.cache
def sources() -> tuple[Source, ...]:
    found = []
    for folder in (*ROOT.glob("*/src"), *ROOT.glob("backends/**/src")):
        for file in sorted(folder.rglob("*.py")):
            text, path = file.read_text(), str(file.relative_to(folder))
            distribution = str(folder.relative_to(ROOT))
            found.append(Source(distribution, path, text))
    return tuple(found)


def named_by_us() -> list[Source]:
    return [source for source in sources() if SHIM not in source.path]


# ---- files

#: Words that say nothing of what a file holds.
VAGUE = {
    "causes", "crashes", "cuts", "edges", "facts", "folds", "halves", "limits", "lines", "needs",
    "notes", "parts",
    "pieces", "places", "polls", "promises", "roots", "rows", "slabs", "turns", "units", "words",
}  # fmt: skip
#: Irregular participles.
PARTICIPLES = {
    "built", "drawn", "found", "given", "held", "kept", "known", "laid", "left", "lent", "made",
    "met", "put", "seen",
    "shown", "taken", "told", "written",
}  # fmt: skip
#: Names and last words that end as participles do, and are the field's.
ESTABLISHED = {"embed", "feed", "loop_carried", "seed", "shared", "speed", "scaled", "typed"}


def is_misnamed(stem: str) -> bool:
    """Return whether a file is named by a participle, or by a plural that says nothing."""
    words = stem.strip("_").split("_")
    participle = words[-1].endswith("ed") or PARTICIPLES & {words[0], words[-1]}
    return stem in VAGUE or (bool(participle) and not ESTABLISHED & {stem, words[-1]})


@pytest.mark.parametrize(
    ("stem", "misnamed"),
    [
        ("insert_membar", False), ("alias", False), ("allocate_shared", False),
        ("masked_off_lanes", False), ("tensor_maps", False),
        ("made_maps", True), ("left_out", True), ("launched", True), ("words", True),
    ],
)  # fmt: skip
def test_misnamed_files_are_found(stem: str, misnamed: bool) -> None:
    assert is_misnamed(stem) == misnamed


def test_files_are_named_by_nouns_and_verb_phrases() -> None:
    wrong = sorted({source.stem for source in named_by_us() if is_misnamed(source.stem)})
    assert not wrong, f"named by a participle or a vague plural: {wrong}"


#: Packages whose folders are stages of one family (the toolkit's), or parallel profiles (the
#: suite's): the folder names the stage or profile, and what has one name in two belongs together.
FAMILIES = ("tilewright/simt/", "tilewright_conformance/cases/")


def package_of(path: str) -> str:
    """Return the first folder below the distribution's root package; empty for its own modules."""
    _, *folders, _ = path.split("/")
    return folders[0] if folders else ""


@pytest.mark.parametrize(
    ("path", "package"),
    [("tilewright/errors.py", ""), ("tilewright/ir/ops/memory.py", "ir")],
)
def test_a_package_is_the_first_folder_below_the_root(path: str, package: str) -> None:
    assert package_of(path) == package


def test_no_two_files_of_a_package_have_the_same_name() -> None:
    """A file's name is unique in its package: the first folder below the distribution's root.

    Two packages may have files of one name, as folders of LLVM's and Cranelift's instruction sets
    do: the folder says whose it is, and readers find the counterpart (``ir/ops/memory.py`` declares
    what ``reference/operations/memory.py`` evaluates). Inside :data:`FAMILIES` folders do the same.
    """
    paths: dict[tuple[str, str, str], list[str]] = {}
    for source in named_by_us():
        if not source.stem.startswith("__") and not source.path.startswith(FAMILIES):
            key = (source.distribution, package_of(source.path), source.stem)
            paths.setdefault(key, []).append(source.path)
    wrong = [same for same in paths.values() if len(same) > 1]
    assert not wrong, f"names of two files: {wrong}"


# ---- classes


def classes() -> Counter[str]:
    core = [source for source in named_by_us() if source.distribution == "core/src"]
    nodes = (node for source in core for node in source.nodes)
    return Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))


def test_no_two_classes_of_the_core_have_the_same_name() -> None:
    wrong = sorted(name for name, count in classes().items() if count > 1)
    assert not wrong, f"names of several classes: {wrong}"


# ---- words

#: Words that the sources do not have -> the field's.
WORDS: dict[str, str] = {
    "block of threads": "CTA",
    "blocks of threads": "CTAs",
    "by turns": "in turn, ping-pong",
    "copy engine": "TMA",
    "functionals": "linear forms",
    "gives": "returns, yields",
    "greatest": "maximum, largest",
    "least": "minimum, smallest",
    "left out": "masked off",
    "machine s own": "tensor memory, target's",
    "meetings": "barriers, rendezvous",
    "multiprocessor": "SM, CU",
    "paced": "throttled",
    "parted": "partitioned",
    "promised": "assumed, hinted",
    "published": "fenced, visible to the async proxy",
    "slab": "swizzle atom",
    "slabs": "swizzle atoms",
    "taken apart": "decomposed, legalized",
    "taken for": "assumed",
    "told": "reported, emitted",
    "trails": "deferred wait",
    "turned": "transposed",
    "under way": "in flight",
    "unseen": "masked-off",
}
#: Entries of several words -> how they stand in prose, in names and across lines of a comment.
PHRASES = {
    one: re.compile(rf"\b{one}\b".replace(" ", r"(?:[ _']|\s*\n[ #:]*)"), re.IGNORECASE)
    for one in WORDS
    if " " in one
}
#: Words of arithmetic -> the field's where they name a matmul or what it adds to. Prose may speak
#: of the sums and products of numbers, and so may the names of a module that names no matmul.
MATMUL_WORDS: dict[str, str] = {
    "product": "matmul, dot, MMA",
    "products": "matmuls, dots, MMAs",
    "sums": "accumulator, partial sums",
}
#: Parts of names by which a module names matmuls.
MATMULS = {"matmul", "matmuls", "mma", "wgmma", "tcgen05", "mfma", "wmma"}
#: Names that have a word of the tables, and are another's: the drivers' attributes of an SM, and
#: the Cartesian product of :mod:`itertools`; and phrases of general English.
FOREIGN = re.compile(
    r"\w*multi_?processor\w*|itertools\.product|itertools import "
    r"product|(?<![a-z])at[\s#:_]+(f?\")?least(?![a-z])|"
    r"\bat \"\s+f?\"least\b|\bleast significant|\bdot[ _-]products?|"
    r"\b(partial|prefix)_sums\b|\bwide_?products\b",
    re.IGNORECASE,
)


def words_of(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)]


def occurrences(text: str) -> Counter[str]:
    """Count the words of the tables in the names and prose of a module, without others' words."""
    found = words_in(text)
    return words_in(FOREIGN.sub(" ", text)) if found else found


def words_in(text: str) -> Counter[str]:
    """Count the words of the tables in the names and prose of a module."""
    words = Counter(words_of(text))
    found = Counter({one: words[one] for one in WORDS if words[one]})
    for one, phrase in PHRASES.items():
        if words[one.partition(" ")[0]]:
            found[one] += len(phrase.findall(text))
    return +found + matmul_words(text)


def matmul_words(text: str) -> Counter[str]:
    """Count the words of arithmetic in the names of a module, where it names matmuls."""
    lower = text.lower()
    if not all(any(word in lower for word in words) for words in (MATMULS, MATMUL_WORDS)):
        return Counter()
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError):
        return Counter()
    names = [word for token in tokens if token.type == NAME for word in words_of(token.string)]
    if not MATMULS & set(names):
        return Counter()
    return Counter(word for word in names if word in MATMUL_WORDS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class ProductPlan:  # matmul_sums\n    mma, lane_sums", {"product": 1, "sums": 1}),
        ("product = a * b  # no matmul here", {}),
        ("matmuls = itertools.product(a, partial_sums)  # the sums", {}),
        ("copies under_way; one under way", {"under way": 2}),
        ("memory of the machine's own", {"machine s own": 1}),
        ("at least the least; productive, returned, TMALoads", {"least": 1}),
    ],
)
def test_words_are_found_in_names_and_prose(text: str, expected: dict[str, int]) -> None:
    assert occurrences(text) == Counter(expected)


def test_the_sources_use_the_words_of_the_field() -> None:
    wrong = [
        f"{source.path}: {word} (say {(WORDS | MATMUL_WORDS)[word]})"
        for source in named_by_us()
        for word in occurrences(source.text)
    ]
    assert not wrong, "\n".join(wrong)


# ---- docstrings and lines

#: Columns that a line has at most.
COLUMNS = 100
#: Nodes that have docstrings.
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: The beginnings of relative clauses.
RELATIVE = re.compile(r"(What|Which|Whether|Who|How|That)\b")


@functools.cache
def titles() -> list[tuple[str, str, int]]:
    """(distribution, the first line of a docstring, the columns that its line has before it)."""
    return list(_titles())


def _titles() -> Iterator[tuple[str, str, int]]:
    for source in sources():
        for node in source.nodes:
            if isinstance(node, DOCUMENTED):
                doc = ast.get_docstring(node, clean=False)
                if doc:
                    yield (
                        source.distribution,
                        doc.strip().split("\n")[0],
                        node.body[0].col_offset + 3,
                    )


def long_lines(text: str) -> list[int]:
    """Return the lines that are too long; those of strings of several lines are text, not code."""
    long = {number for number, line in enumerate(text.split("\n"), 1) if len(line) > COLUMNS}
    first = 0
    for part in tokenize.generate_tokens(io.StringIO(text).readline) if long else ():
        name = tokenize.tok_name[part.type]
        if name in ("STRING", "FSTRING_START"):
            first = part.start[0]
        if name in ("STRING", "FSTRING_END") and part.end[0] > first:
            long -= set(range(first, part.end[0] + 1))
    return sorted(long)


def test_long_lines_are_found() -> None:
    long = "x" * COLUMNS
    text = f'a = """{long}\n{long}"""\nf""" {{b}} {long}\n"""\nc = "{long}"\nd = 1  # {long}\n'
    assert long_lines(text) == [5, 6]


def test_lines_are_short() -> None:
    wrong = [
        f"{source.path}:{number}"
        for source in sources()
        for number, line in enumerate(source.text.split("\n"), start=1)
        if len(line) > COLUMNS
    ]
    assert not wrong, f"lines of more than {COLUMNS} columns: {wrong}"


def test_lines_of_tests_are_short() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{number}"
        for folder in (*ROOT.glob("*/tests"), *ROOT.glob("backends/**/tests"))
        for file in sorted(folder.rglob("*.py"))
        for number in long_lines(file.read_text())
    ]
    assert not wrong, f"lines of more than {COLUMNS} columns: {wrong}"


def test_first_lines_of_docstrings_are_short() -> None:
    wrong = [title for _, title, before in titles() if before + len(title) > COLUMNS]
    assert not wrong, wrong


def test_docstrings_begin_with_an_imperative_or_a_noun() -> None:
    wrong = [
        f"{distribution}: {title}" for distribution, title, _ in titles() if RELATIVE.match(title)
    ]
    assert not wrong, "\n".join(wrong)


# ---- lists of operations, and targets that remember


@functools.cache
def operation_class(name: object) -> type[Operation] | None:
    """The class of an operation that no other operation is of; None where it shares its class."""
    if not isinstance(name, str) or name not in SIMT_TABLE:
        return None
    found = SIMT_TABLE[name].op_class
    sharing = [spec for spec in SIMT_TABLE if issubclass(spec.op_class, found)]
    return found if len(sharing) == 1 else None


def listed(value: ast.expr | None) -> list[object]:
    """Return the constants of a set, tuple or list, and of those that are unpacked into it.

    It may stand within ``frozenset`` or ``tuple``, or be words of a text that is split.
    """
    match value:
        case ast.Constant(value=constant):
            return [constant]
        case (
            ast.Starred(value=inner)
            | ast.Call(func=ast.Name("frozenset" | "set" | "tuple"), args=[inner])
        ):
            return listed(inner)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
            return list(text.split())
        case ast.Set(elts=elements) | ast.Tuple(elts=elements) | ast.List(elts=elements):
            return [constant for element in elements for constant in listed(element)]
        case ast.BinOp(left=left, right=right):
            return listed(left) + listed(right)
    return []


def name_lists(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the variables and constants whose value lists two and more names of operations.

    A list that has a name is one to tell operations apart by, and a new operation is missing from
    it in silence. What operations have in common is a trait, an effect or a class of theirs. Names
    are data where a rule states them: as arguments (what a rewrite matches, what a decomposition
    leaves) and in dictionaries, which say something of each.
    """
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            names = listed(node.value)
            if len(names) > 1 and all(name in SIMT_TABLE for name in names):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def name_comparisons(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Lines that compare ``.name`` with the name of an operation that has a class of its own."""
    for node in nodes:
        if isinstance(node, ast.Compare) and getattr(node.left, "attr", "") == "name":
            (other, *_) = node.comparators
            if any(operation_class(name) for name in listed(other)):
                yield node.lineno


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('A = frozenset({"load", "store"})', True),
        ('A: Final = ("for", "while")', True),
        ('A = ("add", *("sub", "mul"), *B)', True),
        ('A = B | {"add", "sub"}', True),
        ('A = frozenset("add sub".split())', True),
        ('def f():\n    a = ["add", "sub"]', True),
        ('A = {"load", "red"}', False),
        ('A = ("add",)', False),
        ('A = {"add": 1, "sub": 2}', False),
        ('A = (Rewrite(("add", "sub"), law),)', False),
        ('@lowers("add", "sub")\ndef f(): pass', False),
    ],
)
def test_lists_of_names_are_found(text: str, found: bool) -> None:
    assert bool(list(name_lists(nodes_of(text)))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('op.name == "load"', True),
        ('op.parent.name not in ("for", "while")', True),
        ('op.name in ("add", "load")', True),
        ('op.name == "add"', False),
        ('op.name == "red"', False),
        ("isinstance(op, Load)", False),
    ],
)
def test_comparisons_of_names_are_found(text: str, found: bool) -> None:
    assert bool(list(name_comparisons(nodes_of(text)))) == found


def test_operations_are_classified_by_traits() -> None:
    wrong = [
        f"{source.distribution}: {name}"
        for source in named_by_us()
        for name in name_lists(source.nodes)
    ]
    assert not wrong, f"lists of operations' names, for which traits or classes stand: {wrong}"


def test_operations_are_told_apart_by_their_classes() -> None:
    wrong = [
        f"{source.path}:{line}"
        for source in named_by_us()
        if source.distribution != "conformance/src"
        for line in name_comparisons(source.nodes)
    ]
    assert not wrong, f"use isinstance: {wrong}"


def targets() -> Iterator[ast.ClassDef]:
    """Yield the classes of targets and of capabilities, by the names of their bases."""
    nodes = [
        (node, "/target/capabilities/" in source.path)
        for source in sources()
        for node in tree_of(source.text).body
    ]
    bases = {
        node: {getattr(base, "id", "") for base in node.bases}
        for node, _ in nodes
        if isinstance(node, ast.ClassDef)
    }
    known = {
        "SimtTarget",
        *(node.name for node, capability in nodes if capability and isinstance(node, ast.ClassDef)),
    }
    while more := {node.name for node in bases if known & bases[node]} - known:
        known |= more
    return (node for node in bases if node.name in known)


def test_targets_answer_and_remember_nothing() -> None:
    found = list(targets())
    assert len(found) > 60
    methods = {
        f"{target.name}.{method.name}"
        for target in found
        for method in target.body
        if isinstance(method, ast.FunctionDef) and method.name != "__init__"
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
        if getattr(node.value, "id", "") == "self"
    }
    assert not methods, f"targets are immutable: {sorted(methods)}"
