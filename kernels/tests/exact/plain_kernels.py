"""Formulas as loops over scalars: no tiles, no masks, no maxima that are subtracted."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def softmax_of_scalars(x_ptr, y_ptr, n, LOG: tl.constexpr, BY_LOG: tl.constexpr):
    x_ptr += tl.program_id(0) * n
    y_ptr += tl.program_id(0) * n
    total = 0.0
    for i in range(n):
        total += tl.exp(tl.load(x_ptr + i).to(tl.float32))
    for i in range(n):
        x = tl.load(x_ptr + i).to(tl.float32)
        y = x - tl.log(total)
        if not LOG:
            y = tl.exp(y) if BY_LOG else tl.exp(x) / total
        tl.store(y_ptr + i, y)


@tw.jit
def softmax_slopes_of_scalars(dy_ptr, y_ptr, dx_ptr, n):
    start = tl.program_id(0) * n
    total = 0.0
    for i in range(start, start + n):
        total += tl.load(dy_ptr + i) * tl.load(y_ptr + i)
    for i in range(start, start + n):
        tl.store(dx_ptr + i, tl.load(y_ptr + i) * (tl.load(dy_ptr + i) - total))


@tw.jit
def rms_norm_of_scalars(x_ptr, weight_ptr, y_ptr, n, eps):
    start = tl.program_id(0) * n
    squares = 0.0
    for i in range(n):
        x = tl.load(x_ptr + start + i).to(tl.float32)
        squares += x * x
    for i in range(n):
        x = tl.load(x_ptr + start + i).to(tl.float32)
        weight = tl.load(weight_ptr + i).to(tl.float32)
        tl.store(y_ptr + start + i, x * weight / tl.sqrt(squares / n + eps))


@tw.jit
def layer_norm_of_scalars(x_ptr, weight_ptr, bias_ptr, y_ptr, n, eps):
    start = tl.program_id(0) * n
    total, squares = 0.0, 0.0
    for i in range(n):
        x = tl.load(x_ptr + start + i)
        total += x
        squares += x * x
    mean = total / n
    root = tl.sqrt(squares / n - mean * mean + eps)
    for i in range(n):
        y = (tl.load(x_ptr + start + i) - mean) / root
        tl.store(y_ptr + start + i, y * tl.load(weight_ptr + i) + tl.load(bias_ptr + i))


@tw.jit
def cross_entropy_of_scalars(x_ptr, target_ptr, loss_ptr, n):
    row = tl.program_id(0)
    total = 0.0
    for i in range(n):
        total += tl.exp(tl.load(x_ptr + row * n + i))
    chosen = tl.load(x_ptr + row * n + tl.load(target_ptr + row))
    tl.store(loss_ptr + row, tl.log(total) - chosen)


@tw.jit
def swiglu_of_scalars(gate_ptr, up_ptr, y_ptr):
    i = tl.program_id(0)
    gate = tl.load(gate_ptr + i)
    tl.store(y_ptr + i, gate * tl.load(up_ptr + i) / (1 + tl.exp(-gate)))


@tw.jit
def rotary_of_scalars(x_ptr, cos_ptr, sin_ptr, y_ptr, heads, half):
    row, i = tl.program_id(0), tl.program_id(1)
    cos, sin = tl.load(cos_ptr + row * half + i), tl.load(sin_ptr + row * half + i)
    for head in range(row * heads, row * heads + heads):
        start = head * 2 * half + i
        x, other = tl.load(x_ptr + start), tl.load(x_ptr + start + half)
        tl.store(y_ptr + start, x * cos - other * sin)
        tl.store(y_ptr + start + half, other * cos + x * sin)


@tw.jit
def moments_of_scalars(x_ptr, sum_ptr, mean_ptr, var_ptr, n, columns):
    column = tl.program_id(0)
    total, squares = 0.0, 0.0
    for i in range(n):
        x = tl.load(x_ptr + i * columns + column)
        total += x
        squares += x * x
    tl.store(sum_ptr + column, total)
    tl.store(mean_ptr + column, total / n)
    tl.store(var_ptr + column, (squares - total * total / n) / n)


@tw.jit
def prefix_sums_of_scalars(x_ptr, y_ptr, n):
    start = tl.program_id(0) * n
    total = 0.0
    for i in range(start, start + n):
        total += tl.load(x_ptr + i)
        tl.store(y_ptr + i, total)


@tw.jit
def recurrence_of_scalars(a_ptr, x_ptr, h_ptr, n, columns):
    i = tl.program_id(0) * n * columns + tl.program_id(1)
    h = 0.0
    for _ in range(n):
        h = tl.load(a_ptr + i) * h + tl.load(x_ptr + i)
        tl.store(h_ptr + i, h)
        i += columns


@tw.jit
def convolution_of_scalars(x_ptr, w_ptr, y_ptr, n, WIDTH: tl.constexpr):
    channel, i = tl.program_id(0), tl.program_id(1)
    y = 0.0
    for tap in tl.static_range(WIDTH):
        place = i + tap - (WIDTH - 1)
        if place >= 0:
            y += tl.load(x_ptr + channel * n + place) * tl.load(w_ptr + channel * WIDTH + tap)
    tl.store(y_ptr + channel * n + i, y)


@tw.jit
def matmul_of_scalars(a_ptr, b_ptr, c_ptr, n, k, BATCHED: tl.constexpr):
    row, column, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if BATCHED:
        a_ptr += batch * tl.num_programs(0) * k
        b_ptr += batch * n * k
        c_ptr += batch * tl.num_programs(0) * n
    total = 0.0
    for i in range(k):
        a = tl.load(a_ptr + row * k + i).to(tl.float32)
        total += a * tl.load(b_ptr + i * n + column).to(tl.float32)
    tl.store(c_ptr + row * n + column, total)


@tw.jit
def attention_of_scalars(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, rows, heads, scale, D: tl.constexpr
):
    row, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    step = heads * D
    q = tl.load(q_ptr + row * step + head * D + d).to(tl.float32)
    total, out = 0.0, tl.zeros([D], tl.float32)
    for column in range(row + 1):
        place = column * step + head * D + d
        k, v = tl.load(k_ptr + place).to(tl.float32), tl.load(v_ptr + place).to(tl.float32)
        weight = tl.exp(tl.sum(q * k, axis=0) * scale)
        total += weight
        out += weight * v
    tl.store(out_ptr + row * step + head * D + d, out / total)
    tl.store(lse_ptr + head * rows + row, tl.log(total))


@tw.jit
def attention_slopes_of_scalars(
    q_ptr, k_ptr, v_ptr, out_ptr, do_ptr, dq_ptr, dk_ptr, dv_ptr, rows, scale, D: tl.constexpr
):
    d = tl.arange(0, D)
    for row in range(rows):
        q = tl.load(q_ptr + row * D + d)
        do = tl.load(do_ptr + row * D + d)
        delta = tl.sum(do * tl.load(out_ptr + row * D + d), axis=0)
        total, dq = 0.0, tl.zeros([D], tl.float32)
        for column in range(rows):
            k = tl.load(k_ptr + column * D + d)
            total += tl.exp(tl.sum(q * k, axis=0) * scale)
        for column in range(rows):
            place = column * D + d
            k, v = tl.load(k_ptr + place), tl.load(v_ptr + place)
            weight = tl.exp(tl.sum(q * k, axis=0) * scale - tl.log(total))
            slope = weight * (tl.sum(do * v, axis=0) - delta) * scale
            dq += slope * k
            tl.store(dk_ptr + place, tl.load(dk_ptr + place) + slope * q)
            tl.store(dv_ptr + place, tl.load(dv_ptr + place) + weight * do)
        tl.store(dq_ptr + row * D + d, dq)
