"""A kernel of 64 parameters, any of which a launch may pass.

Parameters that are None are no arguments of the compiled code.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl

#: Parameters after the three arrays for results.
MOST = 61


@tw.jit
def put(integers, unsigned, floats, value, POSITION: tl.constexpr):
    if value.dtype.is_ptr():
        put(integers, unsigned, floats, tl.load(value), POSITION)
    elif value.dtype.is_floating():
        tl.store(floats + POSITION, value)
    elif value.dtype == tl.uint64:
        tl.store(unsigned + POSITION, value)
    else:
        tl.store(integers + POSITION, value)


# fmt: off
@tw.jit
def take(
    integers, unsigned, floats,
    p0=None, p1=None, p2=None, p3=None, p4=None, p5=None, p6=None, p7=None, p8=None, p9=None,
    p10=None, p11=None, p12=None, p13=None, p14=None,
    p15=None, p16=None, p17=None, p18=None, p19=None, p20=None, p21=None, p22=None, p23=None,
    p24=None, p25=None, p26=None, p27=None, p28=None,
    p29=None, p30=None, p31=None, p32=None, p33=None, p34=None, p35=None, p36=None, p37=None,
    p38=None, p39=None, p40=None, p41=None, p42=None,
    p43=None, p44=None, p45=None, p46=None, p47=None, p48=None, p49=None, p50=None, p51=None,
    p52=None, p53=None, p54=None, p55=None, p56=None,
    p57=None, p58=None, p59=None, p60=None,
):
    values = (
        p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, p17, p18, p19,
        p20, p21, p22, p23, p24, p25, p26, p27, p28, p29,
        p30, p31, p32, p33, p34, p35, p36, p37, p38, p39, p40, p41, p42, p43, p44, p45, p46, p47,
        p48, p49, p50, p51, p52, p53, p54, p55, p56, p57,
        p58, p59, p60,
    )
    for position in tl.static_range(len(values)):
        if values[position] is not None:
            put(integers, unsigned, floats, values[position], position)
# fmt: on


@tw.jit
def take_any(integers, unsigned, floats, *values):
    for position in tl.static_range(len(values)):
        put(integers, unsigned, floats, values[position], position)
