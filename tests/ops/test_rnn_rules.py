"""Fused LSTM and GRU cells against the cell equations and their autograd.

There is no CPU kernel for these operators. The reference is the equations below; `equations`
checks these against `nn.LSTMCell` and `nn.GRUCell`. A case takes ``call(name, *args)``, which runs
one operator and returns its results on the CPU as a list.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ops import on_device
from ops.row import t

LSTM, GRU = "aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell"
COVERS = (LSTM, LSTM + "_backward_impl", GRU, GRU + "_backward")


def lstm(x, h, c, bias_x=None, bias_h=None):
    gates = x + h
    gates = gates if bias_x is None else gates + bias_x + bias_h
    i, f, g, o = gates.chunk(4, -1)
    cy = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * cy.tanh(), cy


def gru(x, h, state, bias_x=None, bias_h=None):
    x = x if bias_x is None else x + bias_x
    h = h if bias_h is None else h + bias_h
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, -1), h.chunk(3, -1)
    z = (x_z + h_z).sigmoid()
    new = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
    return (1 - z) * new + z * state


def close(mine, theirs):
    assert mine is not None
    half = mine.dtype.itemsize == 2
    theirs = theirs.to(mine.dtype)
    rtol, atol = (1.6e-2, 1e-2) if half else (1e-5, 1e-6)
    torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol)


def arguments(gates, dtype, bias, batch=(3,), hidden=5):
    made = [t(*batch, gates * hidden, dtype=dtype, seed=s) for s in (0, 1)]
    made.append(t(*batch, hidden, dtype=dtype, seed=2))
    biases = [t(gates * hidden, dtype=dtype, seed=s) for s in (3, 4)]
    return made + (biases if bias else [None, None])


def doubles(tensors):
    return [None if x is None else x.double().requires_grad_() for x in tensors]


def equations(call):
    """The references of this file are the modules' own arithmetic."""
    torch.manual_seed(0)
    x, h, c = t(3, 4), t(3, 5, seed=1), t(3, 5, seed=2)
    cell = nn.LSTMCell(4, 5)
    gates = x @ cell.weight_ih.T, h @ cell.weight_hh.T
    for mine, theirs in zip(
        lstm(*gates, c, cell.bias_ih, cell.bias_hh), cell(x, (h, c)), strict=True
    ):
        close(mine.detach(), theirs.detach())
    cell = nn.GRUCell(4, 5)
    gates = x @ cell.weight_ih.T, h @ cell.weight_hh.T
    close(gru(*gates, h, cell.bias_ih, cell.bias_hh).detach(), cell(x, h).detach())


def lstm_cell(call, dtype):
    for bias in (True, False):
        args = arguments(4, dtype, bias)
        leaves = doubles(args)
        hy, cy = lstm(*leaves)
        got_hy, got_cy, workspace = call(LSTM, *args)
        assert got_hy.dtype is got_cy.dtype is workspace.dtype is dtype
        assert workspace.shape == args[0].shape
        close(got_hy, hy.detach())
        close(got_cy, cy.detach())
        needed = [x for x in leaves if x is not None]
        for use_h, use_c in ((True, True), (True, False), (False, True)):
            d_h = t(*hy.shape, dtype=dtype, seed=8) if use_h else None
            d_c = t(*cy.shape, dtype=dtype, seed=9) if use_c else None
            outs = [y for y, used in ((hy, use_h), (cy, use_c)) if used]
            grads = [g.double() for g in (d_h, d_c) if g is not None]
            want = torch.autograd.grad(outs, needed, grads, retain_graph=True)
            back = call(LSTM + "_backward_impl", d_h, d_c, args[2], got_cy, workspace, bias)
            close(back[0], want[0])
            close(back[1], want[2])
            if bias:
                close(back[2], want[3])
            else:
                assert back[2] is None


def gru_cell(call, dtype):
    for bias in (True, False):
        args = arguments(3, dtype, bias)
        leaves = doubles(args)
        hy = gru(*leaves)
        got, workspace = call(GRU, *args)
        assert got.dtype is workspace.dtype is dtype
        assert workspace.shape == (3, 25)
        close(got, hy.detach())
        grad = t(*hy.shape, dtype=dtype, seed=8)
        needed = [x for x in leaves if x is not None]
        want = torch.autograd.grad(hy, needed, grad.double())
        back = call(GRU + "_backward", grad, workspace, bias)
        for mine, theirs in zip(back, want, strict=False):
            close(mine, theirs)
        assert bias or back[3] is back[4] is None


def no_gradient(call):
    """Autograd may ask with neither gradient defined."""
    args = arguments(4, torch.float32, True)
    _, cy, workspace = call(LSTM, *args)
    assert call(LSTM + "_backward_impl", None, None, args[2], cy, workspace, True) == [None] * 3


def saturated(call):
    args = [x * 50 for x in arguments(4, torch.float32, True)]
    for mine, theirs in zip(call(LSTM, *args), lstm(*doubles(args)), strict=False):
        close(mine, theirs.detach())
    args = [x * 50 for x in arguments(3, torch.float32, True)]
    close(call(GRU, *args)[0], gru(*doubles(args)).detach())


CASES = [equations, no_gradient, saturated]
SWEPT = (torch.float64, torch.float16)
DTYPES = [
    torch.float32,
    torch.bfloat16,
    *(pytest.param(d, marks=pytest.mark.sweep) for d in SWEPT),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [lstm_cell, gru_cell], ids=lambda c: c.__name__)
def test_case_of_dtype(case, dtype):
    case(on_device.call, dtype)


@pytest.mark.parametrize("case", CASES, ids=[c.__name__ for c in CASES])
def test_case(case):
    case(on_device.call)
