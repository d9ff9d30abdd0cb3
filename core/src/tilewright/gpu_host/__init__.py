"""Shared host runtime of GPU backends: loading, launches, memory, streams, timing and errors.

A backend supplies
    - one :class:`~tilewright.gpu_host.table.DriverTable`: the names of the driver's functions, and
    adapters where their arguments differ from those of the role,
      its enumerations, status codes and limits, the signature of its native launch function, and an
      :class:`~tilewright.gpu_host.table.Image` of each code object
      (bytes to load, threads, shared memory, launch attributes, opaque arguments);
    - a function that returns the :class:`~tilewright.gpu_host.driver.Driver` of this process, made
    once from that table and the driver's Python bindings, and
      one that says why there is none;
    - its own specifics: linking of its code, parsing of its compiler's log, the architecture of a
    device.

It gets
    - :mod:`.driver`: calls that raise on error statuses, contexts, attributes; :mod:`.errors`: the
    exceptions that statuses become;
    - :mod:`.modules` and :mod:`.kernels`: code loaded once per context, function attributes,
    resource limits reported as ``OutOfResources``;
    - :mod:`.arguments`: the argument block, with space for opaque structures that are encoded at
    launch; :mod:`.expressions`: the structures' inputs, as
      expressions over the arguments' words; :mod:`.launch` and :mod:`.native_launch`: the launcher
      in Python, and the native one that LLVM compiles from the table, which runs no
      Python code; :mod:`.encoding`: the machine code with which the native launcher encodes opaque
      structures;
    - :mod:`.streams` and :mod:`.capture`: stream objects of other libraries, the current stream,
      work beside a graph that is being captured;
    - :mod:`.memory` and :mod:`.timer`: the runtime's ``Memory`` and ``Timer``; :mod:`.devices`: the
      list of devices;
    - :mod:`.linking` and :mod:`.resources`: linked code kept in the disk cache, the errors of
      linkers, occupancy.

A backend's hooks of the launching family are then one line (:mod:`.hooks`), and the others one
each. No vendor is named here, and nothing asks which one it is. Kernels compiled elsewhere are
loaded and launched by this package alone, so it knows nothing of the rest of ``simt``; unlike that
it stands above the runtime, whose argument protocols, disk cache and manifests it uses.
"""
