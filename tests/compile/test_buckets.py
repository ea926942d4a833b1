"""Dynamic sizes: a few programs serve all sizes, and nothing beyond a size is ever seen.

What lies beyond is filled with NaN, or with numbers no result has, before each call.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from both import DEVICE, rand, same

from torch_tpu.compile import buckets

LENGTHS = (5, 20, 2, 7, 6, 19, 8, 17)


def poisoned(tensor: torch.Tensor, length: int) -> torch.Tensor:
    """`flat_of` with garbage that shows."""
    flat = tensor.detach().cpu().flatten()
    if flat.dtype.is_floating_point or flat.dtype.is_complex:
        garbage = math.nan
    else:
        garbage = True if flat.dtype is torch.bool else torch.iinfo(flat.dtype).max // 2
    rest = torch.full((length - flat.numel(),), garbage, dtype=flat.dtype)
    return torch.cat([flat, rest]).to(tensor.device)


@pytest.fixture
def operators(monkeypatch):
    """The operators of the graphs that are compiled."""
    made = []
    original = buckets.operator_of

    def operator_of(*arguments):
        made.append(original(*arguments))
        return made[-1]

    monkeypatch.setattr(buckets, "operator_of", operator_of)
    monkeypatch.setattr(buckets, "flat_of", poisoned)
    return made


def test_bucket():
    series = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    assert [n for n in range(65) if buckets.bucket(n) == n] == series
    for n in range(2, 3000):
        assert n <= buckets.bucket(n) < max(1.5 * n, 4)


# ---- operators -------------------------------------------------------------------------------


def ints(*shape: int, below: int = 5) -> torch.Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(sum(shape)))


def row(n):
    return (rand(n),)


def matrix(n):
    return (rand(3, n),)


def batch(n):
    return (rand(2, n, 4),)


def elementwise(x):
    y = F.silu(F.gelu(x) + 2 * x).clamp(min=-1)
    return y, torch.where(x > 0, y, x), x.masked_fill(x > 0, 7.0), x.to(torch.float16), x.int() + 1


def numbers(x):
    n = x.shape[1]
    return x * n, x / (2 * n - 1), torch.full((2,), n, device=x.device) + n // 3, x[0, 0].sum() + n


def rearranged(x):
    y = x.transpose(1, 2).unsqueeze(0).permute(2, 3, 0, 1)
    z = x.reshape(2, x.shape[1], 2, 2).transpose(1, 2)
    return y + 1, (z * 2).reshape(4, -1, 2), x[:, None].expand(2, 3, -1, 4).sum(1), (x + 1).mT


def merged(x):
    n = x.shape[1]
    return (x * 2).view(2 * n, 4) + 1, (x + 1).flatten(), x.transpose(0, 1).reshape(n, 8) + 1


def split_up(x):
    return (x * 2).view(3, -1).sum(0), (x + 1).view(-1, 6).sum(1)


def filled(x):
    n = x.shape[1]
    zeros = torch.zeros(n, 2, device=x.device)
    causal = torch.full((n, n), -math.inf, device=x.device).triu(1)
    spread = torch.arange(3, n + 3, device=x.device), torch.arange(n, device=x.device) * 2.0
    return zeros, x.new_ones(n), torch.ones_like(x), causal, x.tril(), torch.triu(x, 2), spread


def sliced(x):
    n = x.shape[1]
    return (
        [x[:, 1:] + 0, x[:, :-1] + 0, x[:, -1] + 0, x[:, 0] + 0, x[:, -2:] + 0, x[:, ::2] + 0],
        [x[:, : n // 2] + 0, x[:, n // 2 :] + 0],
        x.split([n - 1, 1], 1)[1] + 0,
        [y + 0 for y in x.split([2, 2], 2)],
    )


def joined(x, y):
    z = torch.cat([x, y, x], 1)
    return z.sum(1), torch.cat([z, z[:, :1]], 1), torch.stack([x, x + 1], 2), torch.cat([x, -x], 2)


def placed(x):
    return (
        F.pad(x, (0, 0, 2, 3), value=5.0),
        F.pad(x, (1, 1, -1, 0)),
        x.flip(1),
        x.repeat(1, 2, 2),
        x.roll(3, 1),
    )


def sums(x):
    y = [x.sum(1), x.sum(), x.mean(1, keepdim=True), x.mean(), x.sum((0, 2)), x.mean((0, 1))]
    counts = (x > 0).sum(1), (x > 0).any(1), (x > -9).all(), x[:, :, 0].prod(1), x.int().prod(1)
    return y, counts, x.cumsum(1), x.norm(dim=1), torch.logsumexp(x, 1), x.double().mean(1)


def extremes(x):
    y = [x.amax(1), x.amin((0, 1)), x.max(), x.min(1), x.max(1), (x * 9).int().amax(1)]
    return y, x.argmax(1), x.argmin(1, keepdim=True), x.argmax(), (x * 9).long().argmin(1)


def shares(x):
    return (
        x.softmax(1),
        x.log_softmax(1),
        x.softmax(2),
        F.softmax(x[:, :, 0], 0),
        x.double().softmax(1),
    )


def spreads(x):
    return x.var(1), x.std((0, 1)), torch.var_mean(x, (1, 2), correction=0), x.var(), x.var(2)


def products(x, w):
    y = x @ w
    flat = x[0]
    return y, x.mT @ x, x @ x.mT, flat @ w, flat.T @ flat, w @ flat.T, flat[:, 0] @ flat[:, 1]


def accumulated(x, w):
    bias = torch.ones(4, device=x.device)
    y = torch.addmm(bias, x, w), torch.addmm(w, x.T, x), F.linear(x, w, bias)
    return *y, torch.einsum("ni,nj->ij", x, x), x[:, 0].outer(x[:, 1]), x.T.mv(x[:, 0])


def looked_up(i, w, x):
    return (
        F.embedding(i, w),
        w[i] + 1,
        w.index_select(0, i),
        x[:, i],
        x.gather(1, i[None].expand(2, -1)),
    )


def placed_indices(x):
    last = torch.tensor([-1, 0], device=x.device)
    return x[torch.arange(2, device=x.device), last], x[:, last], x.sort(0).values, x.topk(2, 2)


def normalised(x, w):
    return F.layer_norm(x, (4,), w, w), F.rms_norm(x, (4,), w), F.normalize(x, dim=1)


def attended(q, k, v):
    n, s = q.shape[2], k.shape[2]
    scores = q @ k.mT / 2 + torch.full((n, s), -math.inf, device=q.device).triu(1)
    return scores.softmax(-1) @ v


def fused(q, k):
    v = k + 1
    attention = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    mask = torch.full((q.shape[2], k.shape[2]), -math.inf, device=q.device).triu(1)
    plain, causal = (attention(q, k, v, is_causal=c)[0] for c in (False, True))
    return plain, causal, attention(q, k, v, mask)[0]


def images(x, w):
    y = F.conv2d(x, w, padding=1)
    return F.max_pool2d(y, 2), F.avg_pool2d(y, 2), F.adaptive_avg_pool2d(y, 1).flatten(1)


def two(n):
    return rand(2, n, 4), rand(2, 2 * n + 1, 4)


CASES = [
    (elementwise, batch),
    (numbers, batch),
    (rearranged, batch),
    (merged, batch),
    (split_up, lambda n: (rand(6 * n),)),
    (filled, matrix),
    (sliced, batch),
    (joined, two),
    (placed, batch),
    (sums, lambda n: (rand(2, n, 4) + 1,)),
    (extremes, batch),
    (shares, batch),
    (spreads, batch),
    (products, lambda n: (rand(2, n, 4), rand(4, 4))),
    (accumulated, lambda n: (rand(n, 4), rand(4, 4))),
    (looked_up, lambda n: (ints(n), rand(5, 4), rand(2, 6))),
    (placed_indices, batch),
    (normalised, lambda n: (rand(2, n, 4), rand(4))),
    (attended, lambda n: (rand(2, 2, n, 4), rand(2, 2, n + 3, 4), rand(2, 2, n + 3, 4, seed=1))),
    (images, lambda n: (rand(n, 2, 4, 4), rand(3, 2, 3, 3))),
]


def mark(tensors, first, second) -> None:
    """Mark the dims in which the inputs for two lengths differ."""
    for tensor, a, b in zip(tensors, first, second, strict=True):
        for d in range(a.ndim):
            if a.shape[d] != b.shape[d]:
                torch._dynamo.mark_dynamic(tensor, d)


def check(f, make, operators, lengths=LENGTHS) -> None:
    compiled = torch.compile(f, backend="tpu", fullgraph=True)
    for n in lengths:
        reference, inputs = make(n), tuple(x.to(DEVICE) for x in make(n))
        if n > 3:  # where a slice is empty is another graph
            mark(inputs, make(5), make(7))
        same(compiled(*inputs), f(*reference))
    sizes = [[x.shape for x in make(n)] for n in lengths]
    limit = len({str([list(map(buckets.bucket, s)) for s in shapes]) for shapes in sizes})
    assert operators
    for operator in operators:
        assert operator._handle.entries <= limit
        assert isinstance(operator, buckets.BucketedOperator) == bool(
            buckets._symbols_of(operator.parts.module)
        )
    assert len(operators) <= 3  # sizes 2 and 3 may be graphs of their own


@pytest.mark.parametrize(("f", "make"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_operators(f, make, operators):
    check(f, make, operators)


# ---- training and growing ----------------------------------------------------------------------


def loss_of_tokens(i, target, w):
    x = F.layer_norm(F.embedding(i, w), (4,), w[0], w[1])
    scores = (x @ x.mT).softmax(-1) @ x
    return F.cross_entropy((scores @ w.t()).flatten(0, 1), target.flatten())


def test_training(operators):
    compiled = torch.compile(loss_of_tokens, backend="tpu", fullgraph=True)
    lengths = (5, 20, 6, 7, 19, 8)
    for n in lengths:
        w = rand(5, 4).requires_grad_()
        on_device = w.detach().to(DEVICE).requires_grad_()
        tokens = ints(2, n), ints(2, n)
        inputs = [t.to(DEVICE) for t in tokens]
        for t in inputs:
            torch._dynamo.maybe_mark_dynamic(t, 1)
        expected, actual = loss_of_tokens(*tokens, w), compiled(*inputs, on_device)
        same(actual, expected)
        actual.backward()
        expected.backward()
        same(on_device.grad, w.grad)
    assert [type(o) for o in operators[:2]] == [buckets.BucketedOperator] * 2
    assert max(o._handle.entries for o in operators) <= len({*map(buckets.bucket, lengths)})


class Decoder(torch.nn.Module):
    """Two layers of attention with a cache that grows by one token a step."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(17, 8)
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(8, 24) for _ in range(2))
        self.mlp = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
        self.head = torch.nn.Linear(8, 17)

    def forward(self, token, cache):
        x, grown = self.embed(token), []
        for qkv, mlp, (keys, values) in zip(self.qkv, self.mlp, cache, strict=True):
            q, k, v = qkv(x).view(1, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
            keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            grown.append((keys, values))
            mixed = (q @ keys.mT / 2).softmax(-1) @ values
            x = x + mixed.transpose(1, 2).flatten(2)
            x = x + F.gelu(mlp(F.layer_norm(x, (8,))))
        return self.head(x[:, -1]).argmax(-1, keepdim=True), grown


def decode(step, device, steps=40):
    token = torch.tensor([[3]], device=device)
    cache = [tuple(rand(1, 2, 4, 4, seed=2 * i + j).to(device) for j in range(2)) for i in range(2)]
    tokens = []
    for _ in range(steps):
        token, cache = step(token, cache)
        tokens.append(token.item())
    return tokens


def test_growing_cache(operators):
    torch.manual_seed(3)
    model = Decoder().eval().requires_grad_(False)
    expected = decode(model, "cpu")
    model.to(DEVICE)
    assert decode(torch.compile(model, backend="tpu", fullgraph=True), DEVICE) == expected
    bucketed = [o for o in operators if isinstance(o, buckets.BucketedOperator)]
    assert len(operators) <= 2 and len(bucketed) == 1
    assert bucketed[0]._handle.entries <= len({buckets.bucket(n) for n in range(4, 45)})


# ---- what stays exact --------------------------------------------------------------------------


def test_refused_graphs_are_exact(operators):
    compiled = torch.compile(lambda x: x.sort(0).values * 2, backend="tpu", dynamic=True)
    for n in (5, 7, 6):
        same(compiled(rand(n).to(DEVICE)), rand(n).sort().values * 2)
    (operator,) = operators
    assert not isinstance(operator, buckets.BucketedOperator)
    assert operator._handle.entries == 3


def test_views_of_inputs_are_views(operators):
    compiled = torch.compile(lambda x: (x[1:], x.t(), x + 1), backend="tpu", dynamic=True)
    for n in (5, 7, 6):
        x = rand(n, 3).to(DEVICE)
        rest, turned, more = compiled(x)
        assert rest.data_ptr() == x[1:].data_ptr() and turned.data_ptr() == x.data_ptr()
        same(more, rand(n, 3) + 1)
        more += 1  # a tensor like any other
        same(more, rand(n, 3) + 2)
    assert isinstance(operators[0], buckets.BucketedOperator)


def test_fused_attention(operators):
    def make(n):
        return rand(2, 2, n, 4), rand(2, 2, n + 3, 4, seed=1)

    def reference(q, k):
        v = k + 1
        mask = torch.full((q.shape[2], k.shape[2]), -math.inf).triu(1)
        attention = F.scaled_dot_product_attention
        return attention(q, k, v), attention(q, k, v, is_causal=True), attention(q, k, v, mask)

    compiled = torch.compile(fused, backend="tpu", fullgraph=True)
    for n in (5, 7, 12, 6):
        inputs = tuple(x.to(DEVICE) for x in make(n))
        mark(inputs, make(5), make(7))
        same(compiled(*inputs), reference(*make(n)))
    assert all(isinstance(o, buckets.BucketedOperator) for o in operators)
