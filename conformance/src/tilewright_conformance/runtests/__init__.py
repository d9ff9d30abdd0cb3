"""Run tests: functions of Tile IR with the results of some calls beside them.

    function @triple(%x: i32) -> i32 {
      %0 = constant 3 : i32
      %1 = mul %x, %0 : i32
      return %1
    }
    ; run: @triple(4) == 12

One text is executed by the reference interpreter and by each backend of the machine::

    python -m tilewright_conformance.runtests FILE --backend cpu

A backend needs no part of the language for them, so a vendor can run them first.
"""
