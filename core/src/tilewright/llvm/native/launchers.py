"""Native launchers, common to all backends: builtin functions ``launch(grid, stream, values)``.

One piece of code serves all kernels of a backend; what differs is in a context that the function is
bound to. Whatever is not as expected goes to the Python launcher with the same arguments, which
does the work or reports the error. A backend's writer goes

    frame = LauncherFrame(objects, Context)
    # check with frame.need, read frame.extent and frame.read_values, start the kernel
    ...
    text = frame.finish(ok, words)
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tilewright.llvm.emission.writer import ModuleWriter
from tilewright.llvm.native import native_functions
from tilewright.llvm.native.native_values import write_readers

#: The items of the tuple that a launcher is bound to; what the context refers to comes behind them.
PYTHON_LAUNCHER, RAISE_FAILURE, CONTEXT = range(3)


class LauncherFrame:
    """A launcher being written.

    Attributes:
        module, w: the module, and the writer of its function ``@launch``, in which the arguments
            have been unpacked.
        grid: a tuple of three objects.
        stream: an object.
    """

    def __init__(
        self,
        objects: native_functions.Layout,
        context: type[ctypes.Structure],
        *,
        host_arrays: bool = True,
    ) -> None:
        """Begin a launcher.

        Args:
            context: the fields that differ from kernel to kernel; ``kinds`` (see
                :mod:`.native_values`) and ``count`` are among them.
            host_arrays: whether NumPy arrays are arguments the device can reach.
        """
        self.objects, self._context_type = objects, context
        self.module = ModuleWriter("nounwind")
        write_readers(self.module, objects, host_arrays=host_arrays)
        w = self.w = self.module.function(
            "launch", [("ptr", "self"), ("ptr", "arguments"), ("i64", "given")], "ptr"
        )
        self._slow = w.new_block("slow")
        self.need(w.emit("icmp eq i64 %given, 3"))
        self._context = w.emit(
            f"getelementptr i8, ptr {self.item('%self', CONTEXT)}, i64 {objects.bytes_data}"
        )
        self.grid, self.stream, self._values = (
            w.load("ptr", "%arguments", 8),
            self.at("%arguments", 8),
            self.at("%arguments", 16),
        )
        self.count = self.field("count")
        for values, size in ((self.grid, "3"), (self._values, self.count)):
            self.need(
                w.emit(
                    f"icmp eq ptr {self.at(values, objects.type_offset)}, "
                    f"{native_functions.address(w, 'tuple')}"
                )
            )
            self.need(w.emit(f"icmp eq i64 {self.at(values, objects.size, 'i64')}, {size}"))

    def need(self, condition: str) -> None:
        """Leave the launch to the Python launcher unless an i1 holds."""
        fine = self.w.new_block("fine")
        self.w.branch_if(condition, fine, self._slow, likely=True)
        self.w.place(fine)

    def at(self, base: str, offset: int, type_: str = "ptr") -> str:
        """Load the value ``offset`` bytes behind an address."""
        return self.w.load(
            type_,
            self.w.emit(f"getelementptr i8, ptr {base}, i64 {offset}"),
            4 if type_ == "i32" else 8,
        )

    def item(self, values: str, position: int) -> str:
        """An item of a tuple."""
        return self.at(values, self.objects.tuple_items + 8 * position)

    def field(self, name: str, type_: str = "i64") -> str:
        """A field of the context."""
        return self.at(self._context, getattr(self._context_type, name).offset, type_)

    def extent(self, axis: int, limit: int, into: str) -> str:
        """Return the grid's extent along an axis, an i64 of 1 to ``limit``, stored to ``into``."""
        self.need(
            self.w.emit(f"call i1 @read_signed(ptr {self.item(self.grid, axis)}, ptr {into})")
        )
        extent = self.w.load("i64", into, 8)
        # an empty or negative extent, or one that is too large, is the Python launcher's business
        self.need(self.w.emit(f"icmp ult i64 {self.w.emit(f'sub i64 {extent}, 1')}, {limit}"))
        return extent

    def read_values(self, slots: str) -> None:
        """Read the kernel's arguments into 8-byte slots."""
        self.need(
            self.w.emit(
                f"call i1 @read_values(ptr {self._values}, ptr {self.field('kinds', 'ptr')}, i64 "
                f"{self.count}, ptr {slots})"
            )
        )

    def finish(self, ok: str, words: Sequence[str]) -> str:
        """End the launcher, and return the module's text.

        It returns None where the i1 ``ok`` holds, else the result of the function that raises
        failures, on ``words`` (i32).
        """
        w = self.w
        failed, fine = w.new_block("failed"), w.new_block("fine")
        w.branch_if(ok, fine, failed, likely=True)
        w.place(failed)
        self.module.declare("PyObject_CallFunction", "ptr", ("ptr", "ptr", "..."))
        form, listed = (
            self.module.string(b"i" * len(words)),
            ", ".join(f"i32 {word}" for word in words),
        )
        raised = w.emit(
            "call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr "
            f"{self.item('%self', RAISE_FAILURE)}, ptr {form}, {listed})"
        )
        w.ret(f"ptr {raised}")
        w.place(fine)
        none = native_functions.address(w, "none")
        w.call("Py_IncRef", "void", [("ptr", none)])
        w.ret(f"ptr {none}")
        w.place(self._slow)
        python = self.item("%self", PYTHON_LAUNCHER)
        result = w.call(
            "PyObject_Vectorcall",
            "ptr",
            [("ptr", python), ("ptr", "%arguments"), ("i64", "%given"), ("ptr", "null")],
        )
        w.ret(f"ptr {result}")
        return self.module.text()
