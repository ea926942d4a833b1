"""The point-wise halves of LSTM and GRU cells, forward and backward.

`nn.LSTM`, `nn.GRU` and their cells call these once per step on a PrivateUse1 device, after the two
matrix products (which are `addmm`s of their own). Gates lie side by side in the last dim: LSTM
input, forget, cell, output; GRU reset, input (update), new. The *workspace* carries what backward
needs and is only ever read here: LSTM keeps the four activated gates [N, 4H]; GRU keeps reset,
update, new, the previous state and the hidden half of the new gate [N, 5H], as CUDA does.
Everything is computed in float32 for 16-bit inputs and rounded once per result.
"""

from __future__ import annotations

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import op


def _wide(*values: Value | None) -> list[Value | None]:
    """All values in the compute dtype of their own."""
    return [None if v is None else v.to(promote.compute_dtype(v.dtype)) for v in values]


def _chunks(x: Value, count: int) -> list[Value]:
    """``x`` cut into equal parts along the last dim."""
    last = x.ndim - 1
    size = x.shape[last] // count
    return [hlo.slice_dim(x, last, i * size, (i + 1) * size) for i in range(count)]


def _joined(parts: list[Value], like: Value) -> Value:
    return hlo.concatenate(parts, parts[0].ndim - 1).to(like.dtype)


def _with_bias(gates: Value, bias: Value | None) -> Value:
    return gates if bias is None else gates + bias


def _bias_grad(grad_gates: Value) -> Value:
    """Sum over the batch; ``grad_gates`` not yet rounded."""
    return hlo.reduce(grad_gates, "add", range(grad_gates.ndim - 1))


# ---- LSTM ----------------------------------------------------------------------------------


def _lstm_meta(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    """PyTorch's own meta kernel raises for a cell without biases."""
    return [
        cx.new_empty(cx.shape),
        cx.new_empty(cx.shape),
        input_gates.new_empty(input_gates.shape),
    ]


@op("aten::_thnn_fused_lstm_cell", meta=_lstm_meta)
def _thnn_fused_lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    x, h, c, bias_x, bias_h = _wide(input_gates, hidden_gates, cx, input_bias, hidden_bias)
    i, f, g, o = _chunks(_with_bias(x, bias_x) + _with_bias(h, bias_h), 4)
    i, f, g, o = hlo.sigmoid(i), hlo.sigmoid(f), hlo.tanh(g), hlo.sigmoid(o)
    cy = f * c + i * g
    hy = o * hlo.tanh(cy)
    return hy.to(cx.dtype), cy.to(cx.dtype), _joined([i, f, g, o], input_gates)


@op("aten::_thnn_fused_lstm_cell_backward_impl")
def _thnn_fused_lstm_cell_backward_impl(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    if grad_hy is None and grad_cy is None:
        return None, None, None
    d_h, d_c, c, new_c, gates = _wide(grad_hy, grad_cy, cx, cy, workspace)
    i, f, g, o = _chunks(gates, 4)
    tanh_c = hlo.tanh(new_c)
    d_o = hlo.zeros_like(o)
    total = hlo.zeros_like(c) if d_c is None else d_c
    if d_h is not None:
        d_o = d_h * tanh_c * o * (1 - o)
        total = total + d_h * o * (1 - tanh_c * tanh_c)
    d_i = total * g * i * (1 - i)
    d_f = total * c * f * (1 - f)
    d_g = total * i * (1 - g * g)
    parts = [d_i, d_f, d_g, d_o]
    grad_gates = hlo.concatenate(parts, d_i.ndim - 1)
    grad_bias = _bias_grad(grad_gates).to(workspace.dtype) if has_bias else None
    return grad_gates.to(workspace.dtype), (total * f).to(cx.dtype), grad_bias


# ---- GRU -----------------------------------------------------------------------------------


def _gru_meta(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    return [hx.new_empty(hx.shape), hx.new_empty(*hx.shape[:-1], 5 * hx.shape[-1])]


def _gru_backward_meta(grad_hy, workspace, has_bias):
    *batch, hidden = grad_hy.shape
    gates = [workspace.new_empty(*batch, 3 * hidden) for _ in range(2)]
    biases = [workspace.new_empty(3 * hidden) if has_bias else None for _ in range(2)]
    return [*gates, grad_hy.new_empty(grad_hy.shape), *biases]


@op("aten::_thnn_fused_gru_cell", meta=_gru_meta)
def _thnn_fused_gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    x, h, state, bias_x, bias_h = _wide(input_gates, hidden_gates, hx, input_bias, hidden_bias)
    x_r, x_z, x_n = _chunks(_with_bias(x, bias_x), 3)
    h_r, h_z, h_n = _chunks(_with_bias(h, bias_h), 3)
    reset, update = hlo.sigmoid(x_r + h_r), hlo.sigmoid(x_z + h_z)
    new = hlo.tanh(x_n + reset * h_n)
    hy = new + update * (state - new)
    return hy.to(hx.dtype), _joined([reset, update, new, state, h_n], hx)


@op("aten::_thnn_fused_gru_cell_backward", meta=_gru_backward_meta)
def _thnn_fused_gru_cell_backward(grad_hy, workspace, has_bias):
    grad, saved = _wide(grad_hy, workspace)
    reset, update, new, state, h_n = _chunks(saved, 5)
    d_new = grad * (1 - update) * (1 - new * new)
    d_update = grad * (state - new) * update * (1 - update)
    d_reset = d_new * h_n * reset * (1 - reset)
    last = grad.ndim - 1
    grad_input = hlo.concatenate([d_reset, d_update, d_new], last)
    grad_hidden = hlo.concatenate([d_reset, d_update, d_new * reset], last)
    biases = [_bias_grad(g) if has_bias else None for g in (grad_input, grad_hidden)]
    results = [grad_input, grad_hidden, grad * update, *biases]
    return [None if r is None else r.to(workspace.dtype) for r in results]
