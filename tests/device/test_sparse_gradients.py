"""Gradients of sparse tensors, sparse gradients of embeddings, and training with them.

Everything runs on the CPU and on the device and must give the same.
"""

from __future__ import annotations

import pytest
import torch
from sparse_tensors import DEVICES, Make, assert_same, check, outcome

F32, BF = torch.float32, torch.bfloat16
# What the CPU does on the way is its business.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Casting complex values to real"),
]


# ---- autograd ------------------------------------------------------------------------------------


def gradients(run, *tensors: torch.Tensor) -> list:
    """Gradients of the sum of what ``run`` gives, weighted by position."""
    tensors = [t.detach().requires_grad_() for t in tensors]
    result = run(*tensors)
    result = result.to_dense() if result.is_sparse else result
    weights = torch.arange(1, result.numel() + 1, device=result.device).reshape(result.shape)
    result.backward(weights.to(result.dtype))
    return [t.grad for t in tensors]


GRADIENTS = {
    "to_dense": lambda m: gradients(lambda x: x.to_dense(), m.x),
    "coalesce": lambda m: gradients(lambda x: x.coalesce(), m.x),
    "values": lambda m: gradients(lambda x: x.coalesce().values(), m.hybrid),
    "to_sparse": lambda m: gradients(lambda d: d.to_sparse(), m.dense),
    "constructor": lambda m: gradients(
        lambda v: torch.sparse_coo_tensor(m.places([0, 2, 0], [1, 0, 1]), v, (3, 3)), m.dense[0]
    ),
    "mm": lambda m: gradients(torch.mm, m.x, m.dense),
    "sparse.mm": lambda m: gradients(torch.sparse.mm, m.x, m.dense),
    "sparse @ sparse": lambda m: gradients(torch.sparse.mm, m.x, m.y),
    "addmm": lambda m: gradients(
        lambda s, x, d: torch.sparse.addmm(s, x, d, beta=2, alpha=3), m.dense, m.x, m.dense
    ),
    "sum": lambda m: gradients(torch.sparse.sum, m.x),
    "sum of a sparse dim": lambda m: gradients(lambda x: torch.sparse.sum(x, 1), m.x),
    "sum of a dense dim": lambda m: gradients(lambda x: torch.sparse.sum(x, 1), m.hybrid),
    "sum of all sparse dims": lambda m: gradients(lambda x: torch.sparse.sum(x, 0), m.hybrid),
    "add": lambda m: gradients(lambda x, y: x + 2 * y, m.x, m.y),
    "dense add": lambda m: gradients(lambda d, x: torch.add(d, x, alpha=2), m.dense, m.x),
    "mul": lambda m: gradients(lambda x, y: x * y, m.x.coalesce(), m.y.coalesce()),
    "sparse_mask": lambda m: gradients(lambda d: d.sparse_mask(m.x), m.dense),
    "gather": lambda m: gradients(
        lambda d: torch.gather(d, 0, m.places([0, 2, 2]), sparse_grad=True), m.dense
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    check(GRADIENTS[name], F32)


@pytest.mark.parametrize("name", GRADIENTS)
def test_complex_gradients(name):
    # PyTorch has no complex formula for some of them, on any device.
    assert_same(*(outcome(GRADIENTS[name], device, torch.complex64) for device in ("tpu", "cpu")))


def embedding(m: Make, kind=torch.nn.Embedding, **options) -> torch.nn.Module:
    torch.manual_seed(0)
    return kind(10, 3, sparse=True, **options).to(m.device, m.dtype)


def embedding_gradient(m: Make, kind=torch.nn.Embedding, inputs=(), **options):
    layer = embedding(m, kind, **options)
    given = [i.to(m.dtype if i.is_floating_point() else i.dtype).to(m.device) for i in inputs]
    out = layer(*given)
    (out * torch.arange(1, out.numel() + 1, device=m.device).reshape(out.shape)).sum().backward()
    return layer.weight.grad


WORDS = torch.tensor([[1, 4, 4], [9, 0, 4]])
STARTS = torch.tensor([0, 3, 3])
EMBEDDINGS = {
    "embedding": lambda m: embedding_gradient(m, inputs=(WORDS,)),
    "padding": lambda m: embedding_gradient(m, inputs=(WORDS,), padding_idx=4),
    "nothing but padding": lambda m: embedding_gradient(m, inputs=(WORDS[:, 2],), padding_idx=4),
    "no words": lambda m: embedding_gradient(m, inputs=(WORDS[:0],)),
}
BAGS = {
    "rows": ((WORDS,), {}),
    "offsets": ((WORDS.flatten(), STARTS), {}),
    "sum": ((WORDS.flatten(), STARTS), {"mode": "sum"}),
    "weights": ((WORDS, None, torch.arange(6.0).reshape(2, 3)), {"mode": "sum"}),
    "padding": ((WORDS,), {"padding_idx": 4}),
    "last offset": ((WORDS.flatten(), torch.tensor([0, 2, 6])), {"include_last_offset": True}),
}


@pytest.mark.parametrize("dtype", [F32, BF], ids=str)
@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embedding(name, dtype):
    check(EMBEDDINGS[name], dtype)


@pytest.mark.parametrize("dtype", [F32, BF], ids=str)
@pytest.mark.parametrize("name", BAGS)
def test_embedding_bag(name, dtype):
    def run(m):
        inputs, options = BAGS[name]
        given = [i for i in inputs if i is not None]
        if len(given) < len(inputs):
            layer = embedding(m, torch.nn.EmbeddingBag, **options)
            weights = given[1].to(m.device, m.dtype)
            layer(given[0].to(m.device), per_sample_weights=weights).sum().backward()
            return layer.weight.grad
        return embedding_gradient(m, torch.nn.EmbeddingBag, given, **options)

    check(run, dtype)


@pytest.mark.parametrize(
    "run",
    [
        lambda m: embedding_gradient(m, inputs=(WORDS,), scale_grad_by_freq=True),
        lambda m: embedding_gradient(m, torch.nn.EmbeddingBag, (WORDS,), mode="max"),
    ],
    ids=["scaled", "max"],
)
def test_embeddings_that_pytorch_has_no_sparse_gradient_of(run):
    want = outcome(run, "cpu", F32)
    assert isinstance(want, Exception)
    assert_same(outcome(run, "tpu", F32), want)


# ---- training ------------------------------------------------------------------------------------


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
}


def train(m: Make, make_optimizer, kind, steps=4):
    """Weights and state after a few steps with other words in each."""
    layer = embedding(m, kind)
    optimizer = make_optimizer(list(layer.parameters()))
    for step in range(steps):
        words = (WORDS * (step + 1) % 10).to(m.device)
        optimizer.zero_grad()
        (layer(words) ** 2).sum().backward()
        (layer(words.flip(0)) - 1).pow(2).sum().backward()  # adds to the gradient
        optimizer.step()
    state = optimizer.state_dict()["state"].get(0, {})
    return [layer.weight.detach(), *(v for v in state.values() if isinstance(v, torch.Tensor))]


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training(name, kind):
    here, there = (train(Make(d, F32), OPTIMIZERS[name], kind) for d in DEVICES)
    for got, want in zip(there, here, strict=True):
        torch.testing.assert_close(got.cpu().to_dense(), want.to_dense(), rtol=1e-5, atol=1e-6)


def test_steps_with_as_many_words_compile_nothing_new(compiles):
    layer = embedding(Make("tpu", F32))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(words):
        optimizer.zero_grad()
        layer(torch.tensor(words, device="tpu")).sum().backward()
        optimizer.step()

    step([1, 2, 3])
    compiles.reset()
    step([4, 4, 9])
    assert compiles() == 0


def test_a_dense_gradient_meets_a_sparse_one():
    def run(m):
        layer = embedding(m)
        (layer(WORDS.to(m.device)).sum() + layer.weight.pow(2).sum()).backward()
        sparse_first = layer.weight.grad
        layer.weight.grad = None
        layer.weight.sum().backward()
        layer(WORDS.to(m.device)).sum().backward()
        return sparse_first, layer.weight.grad

    check(run, F32)


def test_gradients_are_moved_with_their_module():
    layer = embedding(Make("tpu", F32))
    layer(WORDS.to("tpu")).sum().backward()
    wanted = layer.weight.grad.cpu()
    assert torch.equal(layer.cpu().weight.grad.to_dense(), wanted.to_dense())
    assert_same(layer.to("tpu").weight.grad, wanted)


def test_gradient_scaler():
    def run(m):
        layer = embedding(m)
        scaler = torch.amp.GradScaler(m.device, init_scale=8.0)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for factor in (1.0, float("inf"), 2.0):
            optimizer.zero_grad()
            scaler.scale(layer(WORDS.to(m.device)).sum() * factor).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return layer.weight.detach(), layer.weight.grad, scaler.get_scale()

    check(run, F32)


def test_clipping_is_refused_as_on_the_cpu():
    def run(m):
        layer = embedding(m)
        layer(WORDS.to(m.device)).sum().backward()
        return torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)

    want = outcome(run, "cpu", F32)
    assert isinstance(want, NotImplementedError)
    assert_same(outcome(run, "tpu", F32), want)
