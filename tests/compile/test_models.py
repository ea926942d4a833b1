"""The networks of benchmarks/models, small: one graph each, equal to Strict, for ten steps too.

Compiled and Strict run the same arithmetic on the same device, so results and gradients agree to
rounding; XLA fuses what Strict rounds in between.
"""

import dataclasses
import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))
from models import torch_models  # noqa: E402

SMALL = {
    "gpt": {"layers": 2, "width": 32, "heads": 2, "length": 8, "batch": 2, "words": 64},
    "llama": {"layers": 2, "width": 32, "heads": 2, "length": 8, "batch": 2, "words": 64},
    "resnet": {"layers": 1, "width": 8, "heads": 1, "length": 16, "batch": 2, "words": 10},
}


@pytest.fixture(params=SMALL)
def network(request, monkeypatch):
    """Name, two equal models on the device, inputs and targets."""
    name = request.param
    size = dataclasses.replace(torch_models.SIZES[name], **SMALL[name])
    monkeypatch.setitem(torch_models.SIZES, name, size)
    inputs, targets = (t.to("tpu") for t in torch_models.example(name))
    models = [torch_models.build(name).to("tpu") for _ in range(2)]
    return name, models, inputs, targets


def _close(got, wanted):
    """Within 1e-5 of the largest element, since some elements cancel to nothing."""
    scale = max(wanted.abs().max().item(), 1e-6)
    assert (got - wanted).abs().max().item() <= 1e-5 * scale


def test_outputs_and_gradients_equal_strict(network):
    _, (compiled, strict), inputs, targets = network
    run = torch.compile(compiled, fullgraph=True)
    losses = []
    for forward in (run, strict):
        losses.append(torch_models.loss(forward(inputs), targets))
        losses[-1].backward()
    _close(losses[0].detach(), losses[1].detach())
    largest = max(p.grad.abs().max().item() for p in strict.parameters())
    for ours, theirs in zip(compiled.parameters(), strict.parameters(), strict=True):
        assert (ours.grad - theirs.grad).abs().max().item() <= 1e-5 * largest
    for ours, theirs in zip(compiled.buffers(), strict.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    compiled.eval(), strict.eval()
    with torch.no_grad():
        _close(run(inputs), strict(inputs))


def test_one_graph_without_breaks(network):
    _, (model, _), inputs, _ = network
    found = torch._dynamo.explain(model)(inputs)
    assert (found.graph_count, found.graph_break_count) == (1, 0)


def test_ten_steps_compile_nothing_after_the_second(network, compiles):
    _, (compiled, strict), inputs, targets = network
    run = torch.compile(lambda: torch_models.loss(compiled(inputs), targets))
    histories = []
    for model, loss_of in ((compiled, run), (strict, None)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        history = []
        for step in range(10):
            loss = loss_of() if loss_of else torch_models.loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            history.append(loss.item())
            if step == 1:
                compiles.reset()
        assert compiles() == 0
        histories.append(history)
    torch.testing.assert_close(*histories, rtol=1e-4, atol=1e-5)
