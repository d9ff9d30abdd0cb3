"""Tensor descriptors as plain values: a base address, extents and strides; their loads and stores as pointers under masks.

Each axis has its coordinates and the test that they are in the tensor as tiles of rank 1, which are broadcast late, so that what depends on one axis is
computed once along it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.errors import LoweringError
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.table import Effect
from tilewright.ir.types import I1, I64, DescriptorType, FloatType, PointerType, TileType, Type, byte_size, element_type
from tilewright.passes.axis import axis_info
from tilewright.simt.block_mechanisms import ROW_COPIES
from tilewright.simt.facts import note
from tilewright.simt.ops import SIMT_TABLE
from tilewright.simt.roots import may_be_same, reached, root_of
from tilewright.simt.target import SimtTarget


@dataclass(frozen=True, slots=True)
class _Parts:
    """A descriptor's values, and what a load gives outside the tensor."""

    base: Value
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]
    padding: str

    @property
    def values(self) -> list[Value]:
        return [self.base, *self.shape, *self.strides]


def part_types(type_: DescriptorType) -> list[Type]:
    """The types of the values that a descriptor becomes: base, extents, strides."""
    return [PointerType(type_.element), *[I64] * (2 * type_.rank)]


def expand_descriptors(function: Function, target: SimtTarget) -> bool:
    """Expand a kernel's descriptors; whether it has any."""
    values = (value for operation in function.walk() for value in (*operation.results, *(a for region in operation.regions for a in region.arguments)))
    if not any(isinstance(value.type, DescriptorType) for value in (*function.arguments, *values)):
        return False
    _Expansion(function, target).run()
    return True


class _Expansion:
    """The expansion of one kernel. ``parts`` has the values of each descriptor."""

    def __init__(self, function: Function, target: SimtTarget) -> None:
        self.function, self.target = function, target
        self.parts: dict[Value, _Parts] = {}
        #: descriptors that are the kernel's arguments
        self.given: set[Value] = set()
        #: what the target copies by the descriptor itself
        self._kept: set[Operation] = set()
        #: descriptors that the kernel makes, which the target makes too
        self._made: set[Operation] = set()
        #: stores of threads that loads by descriptors which the kernel makes may come after
        self._published: set[Operation] = set()
        self._known = axis_info(function)
        self._dead: list[Operation] = []

    def run(self) -> None:
        kept = self._expand_arguments()
        for descriptor in self.given:
            self._keep(descriptor)
        if self.target.descriptor_bytes:
            self._keep_made()
        self._region(self.function.body)
        for operation in reversed(self._dead):
            operation.erase()
        self._drop_arguments(kept)

    # ---- arguments of the kernel

    def _expand_arguments(self) -> list[Value]:
        """Put a descriptor argument's parts behind it; gives the descriptors."""
        arguments, attributes = [], []
        entry = Builder(self.function.body, self.function.body.first, self.function.location)
        for argument, known in zip(self.function.arguments, self.function.argument_attributes, strict=True):
            arguments.append(argument)
            attributes.append(known)
            if not isinstance(argument.type, DescriptorType):
                continue
            self.given.add(argument)
            parts = self._new_arguments(argument, self.function.body, known.get("padding", "zero"))
            arguments += parts.values
            # Descriptors that the runtime made, whose divisibility it tells, have aligned rows and a last stride of 1.
            alignment = known.get("divisibility", 1)
            rows = max(1, alignment // byte_size(argument.type.element))
            attributes += [{"divisibility": alignment} if alignment > 1 else {}, *({} for _ in parts.shape[:-1])]
            # The last extent's, in elements: without it a mask cuts every access to single elements.
            width = known.get("extent_divisibility", 1)
            attributes += [{"divisibility": width} if width > 1 else {}]
            attributes += [{"divisibility": rows} if rows > 1 else {} for _ in parts.strides[:-1]] + [{}]
            if alignment > 1:
                parts = _Parts(parts.base, parts.shape, (*parts.strides[:-1], entry.constant(value=1, result=I64)), parts.padding)
            self.parts[argument] = parts
        self.function.body.arguments, self.function.argument_attributes = arguments, attributes
        return list(self.given)

    def _drop_arguments(self, descriptors: Sequence[Value]) -> None:
        """Drop the descriptors that nobody reads any more."""
        dropped = {value for value in descriptors if not value.uses}
        pairs = list(zip(self.function.arguments, self.function.argument_attributes, strict=True))
        self.function.body.arguments = [argument for argument, _ in pairs if argument not in dropped]
        self.function.argument_attributes = [known for argument, known in pairs if argument not in dropped]

    def _new_arguments(self, descriptor: Value, region: Region, padding: str) -> _Parts:
        """Values for a descriptor that is a region's argument, named after it; the caller puts them among the arguments."""
        assert isinstance(descriptor.type, DescriptorType)
        rank = descriptor.type.rank
        names = ["base", *(f"extent{i}" for i in range(rank)), *(f"stride{i}" for i in range(rank))]
        values = []
        for type_, name in zip(part_types(descriptor.type), names, strict=True):
            values.append(Value(type_, region, f"{descriptor.name}.{name}" if descriptor.name else ""))
        return _Parts(values[0], tuple(values[1 : 1 + rank]), tuple(values[1 + rank :]), padding)

    # ---- operations

    def _region(self, region: Region) -> None:
        for operation in region:
            expand = _EXPANSIONS.get(operation.name)
            if expand is not None:
                if operation not in self._kept:
                    expand(self, operation)
            elif operation.name == "for":
                self._for(operation)
            elif operation.name == "while":
                self._while(operation)
            elif operation.name == "if":
                self._if(operation)
            elif operation.name == "select" and isinstance(operation.results[0].type, DescriptorType):
                self._select(operation)

    def _keep(self, descriptor: Value) -> None:
        """Choose the accesses of an argument that the target copies by the descriptor itself. Copies by the machine and accesses by threads do not see each
        other in order: where one writes, all are of one kind."""
        accesses = [user for user in descriptor.uses if user.name not in _NUMBERS]
        kept = {user for user in accesses if user.name in _KEPT and self._is_kept(user)}
        if len(kept) == len(accesses) or not _writes(accesses):
            self._kept |= kept

    def _is_kept(self, access: Operation) -> bool:
        known = [self._known[offset] for offset in access.group("column" if access.name in ROW_COPIES else "offsets")]
        return self.target.keeps_descriptor(access, [info.apart_from_addresses().divisibility_of_all() for info in known], self._width(access.operands[0]))

    def _width(self, descriptor: Value) -> int:
        """What divides the last extent of a descriptor's tensor, in elements."""
        made = descriptor.definition
        if made is not None:
            return self._known[made.group("shape")[-1]].apart_from_addresses().divisibility_of_all()
        place = self.function.arguments.index(descriptor)
        return int(self.function.argument_attributes[place].get("extent_divisibility", 1))

    def _keep_made(self) -> None:
        """Choose the descriptors made in the kernel that the target is to make, and their accesses that it copies by them. They are those that control flow
        does not carry. What threads write is not seen by the machine's copies, nor are their writes in order: they must be of different memory, or be plain
        stores that loads alone come after, for which they are published."""
        kept: dict[Operation, set[Operation]] = {}
        for operation in self.function.walk():
            if operation.name == "make_descriptor":
                accesses = [user for user in operation.results[0].uses if user.name not in _NUMBERS]
                found = {user for user in accesses if user.name in _KEPT and self._is_kept(user)}
                if all(user.name in _ACCESSES for user in accesses) and found and (len(found) == len(accesses) or not _writes(accesses)):
                    kept[operation] = found
        waiting = any(map(_waits_for_others, self.function.walk()))
        while kept:
            copied = self._kept.union(*kept.values())
            writers = {operation: roots for operation in self.function.walk() if operation not in copied and (roots := reached(operation, Effect.WRITE))}
            hidden: list[Operation] = []
            self._published = set()
            for made, copies in kept.items():
                root = root_of(made.results[0])
                earlier = {writer for writer, roots in writers.items() if any(may_be_same(root, other) for other in roots)}
                if waiting or (earlier and (_writes([*copies]) or any(writer.name not in _PUBLISHED for writer in earlier))):
                    hidden.append(made)
                self._published |= earlier
            if not hidden:
                break
            for made in hidden:
                del kept[made]
                self._tell(made)
        self._made = set(kept)
        self._published = self._published if kept else set()
        self._kept = self._kept.union(*kept.values())
        for store in [writer for writer in self._published if writer.name == "store"]:
            self._publish(Builder(store.parent, store.next, store.location))

    def _publish(self, b: Builder) -> None:
        """Let copies see what threads wrote."""
        if self.target.published:
            b.create(SIMT_TABLE["simt.publish"], [], {"everywhere": True})
        b.barrier()

    def _tell(self, made: Operation) -> None:
        """Note at the loop around it why a descriptor is not the target's."""
        loop = next((outer for outer in made.ancestors() if outer.name in ("for", "while")), None)
        if loop is not None:
            why = "the kernel may write to its tensor in other ways, or waits for what others write, which copies of blocks do not see"
            note(loop, f"blocks of the descriptor made at {made.location} are accessed by threads: {why}")

    def _make(self, operation: Operation) -> None:
        base = operation.operand("base")
        assert base is not None
        self.parts[operation.results[0]] = _Parts(base, tuple(operation.group("shape")), tuple(operation.group("strides")), operation.attribute("padding"))
        if operation not in self._made:
            self._dead.append(operation)

    def _number(self, operation: Operation) -> None:
        parts = self.parts[operation.operands[0]]
        numbers = parts.shape if operation.name == "descriptor_extent" else parts.strides
        operation.results[0].replace_all_uses(numbers[operation.attribute("axis")])
        operation.erase()

    def _access(self, operation: Operation) -> None:
        """A block at offsets."""
        descriptor = operation.operands[0]
        assert isinstance(descriptor.type, DescriptorType)
        b, parts = Builder.at(operation), self.parts[descriptor]
        block = descriptor.type.block_shape
        axes = []
        base = parts.base
        for axis, (offset, stride) in enumerate(zip(operation.group("offsets"), parts.strides, strict=True)):
            start = _as_i64(b, offset)
            base = b.addptr(base, b.mul(start, stride))
            inner = _as_i64(b, b.arange(start=0, end=block[axis]))
            axes.append(_Axis(b.add(b.splat(start, result=inner.type), inner), b.mul(inner, b.splat(stride, result=inner.type))))
        self._replace(operation, b, _block(b, parts, base, axes, block))

    def _access_rows(self, operation: Operation) -> None:
        """Rows of a tensor of rank 2, from a column on."""
        descriptor, rows, column = (operation.operand(name) for name in ("descriptor", "rows", "column"))
        assert descriptor is not None and rows is not None and column is not None and isinstance(descriptor.type, DescriptorType)
        assert isinstance(rows.type, TileType)
        b, parts = Builder.at(operation), self.parts[descriptor]
        width = descriptor.type.block_shape[1]
        numbers, start, inner = _as_i64(b, rows), _as_i64(b, column), _as_i64(b, b.arange(start=0, end=width))
        base = b.addptr(parts.base, b.mul(start, parts.strides[1]))
        axes = [
            _Axis(numbers, b.mul(numbers, b.splat(parts.strides[0], result=numbers.type))),
            _Axis(b.add(b.splat(start, result=inner.type), inner), b.mul(inner, b.splat(parts.strides[1], result=inner.type))),
        ]
        self._replace(operation, b, _block(b, parts, base, axes, (rows.type.shape[0], width)))

    def _replace(self, operation: Operation, b: Builder, block: tuple[Value, Value]) -> None:
        """The access itself, at pointers under a mask."""
        pointers, mask = block
        value = operation.operand("value") if operation.name in _WRITES else None
        if operation.name == "descriptor_reduce":
            b.atomic_rmw(pointers, value, mask=mask, kind=operation.attribute("kind"), order="relaxed")
        elif value is not None:
            b.store(pointers, value, mask=mask)
            if operation in self._published:
                self._publish(b)
        else:
            result = operation.results[0]
            element = element_type(result.type)
            nan = isinstance(element, FloatType) and self.parts[operation.operands[0]].padding == "nan"
            other = b.constant_like(result.type, float("nan") if nan else 0)
            result.replace_all_uses(b.load(pointers, mask=mask, other=other))
        operation.erase()

    # ---- control flow

    def _flat(self, values: Sequence[Value]) -> list[Value]:
        """Values with descriptors replaced by their parts."""
        return [part for value in values for part in (self.parts[value].values if isinstance(value.type, DescriptorType) else [value])]

    def _expand_values(self, region: Region, values: Sequence[Value], paddings: Sequence[str]) -> list[Value]:
        """A region's arguments with new values in place of descriptors."""
        expanded: list[Value] = []
        for value, padding in zip(values, paddings, strict=True):
            if isinstance(value.type, DescriptorType):
                self.parts[value] = self._new_arguments(value, region, padding)
                expanded += self.parts[value].values
            else:
                expanded.append(value)
        return expanded

    def _paddings(self, values: Sequence[Value]) -> list[str]:
        return [self.parts[value].padding if isinstance(value.type, DescriptorType) else "" for value in values]

    def _rebuild(self, operation: Operation, operands: Sequence[Value], segments: tuple[int, ...], paddings: Sequence[str]) -> None:
        """The operation with other operands and its results expanded; it keeps its regions."""
        types = [part for result in operation.results for part in (part_types(result.type) if isinstance(result.type, DescriptorType) else [result.type])]
        regions = list(operation.regions)
        copy = Operation(operation.spec, operands, segments, operation.attributes, types, regions, operation.location)
        Builder.at(operation).insert(copy)
        position = 0
        for result, padding in zip(operation.results, paddings, strict=True):
            if isinstance(result.type, DescriptorType):
                rank = result.type.rank
                values = copy.results[position : position + 1 + 2 * rank]
                self.parts[result] = _Parts(values[0], tuple(values[1 : 1 + rank]), tuple(values[1 + rank :]), padding)
                position += 1 + 2 * rank
            else:
                copy.results[position].name = result.name
                result.replace_all_uses(copy.results[position])
                position += 1
        operation.regions = []
        self._dead.append(operation)

    def _carry(self, terminator: Operation, values: Sequence[Value], paddings: Sequence[str], first: int = 0) -> None:
        """Let a terminator hand on parts; ``first`` operands before the values stay."""
        for value, padding in zip(values, paddings, strict=True):
            self._require_padding(terminator, value, padding)
        flat = self._flat(values)
        head = list(terminator.operands[:first])
        terminator.replace_operands([*head, *flat], (*([1] * first), len(flat)))

    def _for(self, operation: Operation) -> None:
        (body,) = operation.regions
        inits = operation.operands[3:]
        paddings = self._paddings(inits)
        body.arguments = [body.arguments[0], *self._expand_values(body, body.arguments[1:], paddings)]
        self._region(body)
        terminator = _terminator(body)
        if not any(paddings):
            return
        self._carry(terminator, list(terminator.operands), paddings)
        flat = self._flat(inits)
        self._rebuild(operation, [*operation.operands[:3], *flat], (1, 1, 1, len(flat)), paddings)

    def _while(self, operation: Operation) -> None:
        before, after = operation.regions
        inits = list(operation.operands)
        paddings = self._paddings(inits)
        before.arguments = self._expand_values(before, before.arguments, paddings)
        self._region(before)
        condition = _terminator(before)
        forwarded = list(condition.operands[1:])
        forwarded_paddings = self._paddings(forwarded)
        after.arguments = self._expand_values(after, after.arguments, forwarded_paddings)
        self._region(after)
        if not any(paddings) and not any(forwarded_paddings):
            return
        self._carry(condition, forwarded, forwarded_paddings, first=1)
        self._carry(_terminator(after), list(_terminator(after).operands), paddings)
        flat = self._flat(inits)
        self._rebuild(operation, flat, (len(flat),), forwarded_paddings)

    def _if(self, operation: Operation) -> None:
        for region in operation.regions:
            self._region(region)
        paddings = self._paddings(_terminator(operation.regions[0]).operands)
        if not any(paddings):
            return
        for region in operation.regions:
            terminator = _terminator(region)
            self._carry(terminator, list(terminator.operands), paddings)
        self._rebuild(operation, operation.operands, operation.segments, paddings)

    def _select(self, operation: Operation) -> None:
        condition, yes, no = operation.operands
        self._require_padding(operation, no, self.parts[yes].padding)
        b = Builder.at(operation)
        values = [b.select(condition, first, second) for first, second in zip(self.parts[yes].values, self.parts[no].values, strict=True)]
        rank = len(self.parts[yes].shape)
        self.parts[operation.results[0]] = _Parts(values[0], tuple(values[1 : 1 + rank]), tuple(values[1 + rank :]), self.parts[yes].padding)
        self._dead.append(operation)

    def _require_padding(self, operation: Operation, value: Value, padding: str) -> None:
        """Refuse a descriptor that meets others with another padding, which is no value at run time."""
        if isinstance(value.type, DescriptorType) and self.parts[value].padding != padding:
            raise LoweringError(
                f"descriptors with paddings {padding!r} and {self.parts[value].padding!r} meet at {operation.location}, and {self.target.name} needs one "
                "padding for all that can arrive there: give them the same padding_option"
            )


def _waits_for_others(operation: Operation) -> bool:
    """Whether an operation lets a program see what others wrote before."""
    if operation.name == "load":
        return bool(operation.attribute("volatile"))
    ordered = operation.name.startswith("atomic") and operation.attribute("order") in ("acquire", "acq_rel", "seq_cst")
    return ordered and any(result.uses for result in operation.results)


def _writes(accesses: Sequence[Operation]) -> bool:
    return any(access.name in _WRITES for access in accesses)


def _terminator(region: Region) -> Operation:
    terminator = region.terminator
    assert terminator is not None
    return terminator


# ---- addresses


@dataclass(frozen=True, slots=True)
class _Axis:
    """Along one axis of a block, as i64 tiles of rank 1: coordinates in the tensor, and how many elements from the block's base."""

    coordinates: Value
    distances: Value


def _as_i64(b: Builder, value: Value) -> Value:
    if element_type(value.type) is I64:
        return value
    target = TileType(value.type.shape, I64) if isinstance(value.type, TileType) else I64
    result: Value = b.cast(value, result=target)
    return result


def _block(b: Builder, parts: _Parts, base: Value, axes: Sequence[_Axis], shape: tuple[int, ...]) -> tuple[Value, Value]:
    """Pointers to the elements of a block, and which of them are in the tensor."""
    pointers = b.splat(base, result=TileType(shape, base.type))
    mask: Value | None = None
    for axis, (along, extent) in enumerate(zip(axes, parts.shape, strict=True)):
        tile = along.coordinates.type
        low = b.cmp(along.coordinates, b.constant_like(tile, 0), predicate="ge")
        high = b.cmp(along.coordinates, b.splat(extent, result=tile), predicate="lt")
        inside = _spread(b, b.and_(low, high), axis, shape)
        mask = inside if mask is None else b.and_(mask, inside)
        pointers = b.addptr(pointers, _spread(b, along.distances, axis, shape))
    assert mask is not None and element_type(mask.type) is I1
    return pointers, mask


def _spread(b: Builder, value: Value, axis: int, shape: tuple[int, ...]) -> Value:
    """A tile of rank 1 along one axis of ``shape``."""
    for other in range(len(shape)):
        if other != axis:
            value = b.expand_dims(value, axis=other)
    assert isinstance(value.type, TileType)
    target = TileType(shape, value.type.element)
    if value.type is not target:
        value = b.broadcast(value, result=target)
    return value


#: What a target may copy by the descriptor itself.
_KEPT = frozenset({"descriptor_load", "descriptor_store", "descriptor_reduce", "descriptor_gather", "descriptor_scatter"})
_PUBLISHED = frozenset({"store", "descriptor_store"})
_NUMBERS = frozenset({"descriptor_extent", "descriptor_stride"})
_WRITES = frozenset({"descriptor_store", "descriptor_reduce", "descriptor_scatter"})
_ACCESSES = _KEPT | _WRITES
_EXPANSIONS: dict[str, Callable[[_Expansion, Operation], None]] = {
    "make_descriptor": _Expansion._make,
    "descriptor_extent": _Expansion._number,
    "descriptor_stride": _Expansion._number,
    "descriptor_load": _Expansion._access,
    "descriptor_store": _Expansion._access,
    "descriptor_reduce": _Expansion._access,
    "descriptor_gather": _Expansion._access_rows,
    "descriptor_scatter": _Expansion._access_rows,
}
