"""What the host sides of GPU backends share: loading kernels, launching them, memory, streams, timing, limits and the errors of all that.

A backend supplies
    - one :class:`~tilewright.gpu_host.table.DriverTable`: what the driver's functions are called and where their arguments differ from the role they play,
      its enumerations, status codes and limits, how its native launch function is called, and an :class:`~tilewright.gpu_host.table.Image` of each code object
      (bytes to load, threads, shared memory, launch attributes, opaque arguments);
    - a function that gives the :class:`~tilewright.gpu_host.driver.Driver` of this process, made once from that table and the driver's Python bindings, and
      one that says why there is none;
    - what truly is its own: how its code is linked, what its compiler's log says, which architecture a device is of.

It gets
    - :mod:`.driver`: calls whose statuses are errors, contexts, attributes; :mod:`.errors`: what users meet instead of a status;
    - :mod:`.modules` and :mod:`.kernels`: code loaded once a context, function attributes, resource limits as ``OutOfResources``;
    - :mod:`.arguments`: the argument block, with places for opaque structures that are encoded at launch; :mod:`.expressions`: what they are made of, in
      words of the arguments; :mod:`.launch` and :mod:`.native_launch`: the launcher in Python, and the one that LLVM makes out of the table, which runs no
      Python code; :mod:`.encoding`: the machine code by which that one makes opaque structures;
    - :mod:`.streams` and :mod:`.capture`: stream objects of other libraries, the current stream, work beside a graph that is being captured;
    - :mod:`.memory` and :mod:`.timer`: the runtime's ``Memory`` and ``Timer``; :mod:`.devices`: the list of devices;
    - :mod:`.linking` and :mod:`.resources`: linked code kept in the disk cache, the errors of linkers, occupancy.

A backend's hooks of the launching family are then one line (:mod:`.hooks`), and the others one each. No vendor is named here, and nothing asks which one it
is. Kernels compiled elsewhere are loaded and launched by this package alone, so it knows nothing of the rest of ``simt``; unlike that it stands above the
runtime, whose argument protocols, disk cache and manifests it uses.
"""
