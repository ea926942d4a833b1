"""What a captured program finds: the modules it uses, by whatever way it refers to them."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import torch
from torch import nn

from torch_tpu.aot.capture import capture
from torch_tpu.aot.compile import compile as compile_for
from torch_tpu.aot.job import Job

X = torch.empty(4, 8, device="meta")


def linear() -> nn.Module:
    with torch.device("meta"):
        return nn.Linear(8, 8, bias=False)


model, net = linear(), linear()  # globals: one has the name of an attribute below


def names(captured) -> list[str]:
    return [p.name for p in captured.parameters if p.kind != "input"]


class Trainer:
    def __init__(self):
        self.model = linear()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.model(x).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def test_an_attribute_is_not_taken_for_the_global_of_its_name():
    captured = capture(Trainer().step, (X,))
    assert names(captured) == ["weight"]
    assert [r.kind for r in captured.results] == ["mutation"]


def test_a_module_that_is_not_used_is_left_out():
    captured = capture(lambda x: net(x) if x.ndim else model(x), (X,))
    assert captured.parameter_count == 64


def test_two_modules_of_one_name_are_both_found():
    def layer():
        model = linear()
        return lambda x: model(x)

    first, second = layer(), layer()
    assert capture(lambda x: second(first(x)), (X,)).parameter_count == 128


@pytest.mark.parametrize("way", ["dict", "object", "argument", "list"])
def test_ways_to_refer_to_a_module(way):
    held, trainer = {"m": linear()}, Trainer()
    programs = {
        "dict": (lambda x: held["m"](x), (X,)),
        "object": (lambda x: trainer.model(x), (X,)),
        "argument": (lambda m, x: m(x), (held["m"], X)),
        "list": (lambda x, layers=None: [trainer.model][0](x), (X,)),
    }
    assert capture(*programs[way]).parameter_count == 64


def test_a_tensor_that_is_no_argument_is_an_error_with_the_line():
    w = torch.ones(8, 8)
    with pytest.raises(ValueError, match=r"test_found\.py:\d+.*no argument"):
        capture(lambda x: x.relu() @ w, (X,))


def test_results_of_unknown_classes_are_refused():
    @dataclasses.dataclass
    class Out:
        t: torch.Tensor

    with pytest.raises(TypeError, match="Out"):
        capture(lambda x: Out(x.sin()), (X,))
    with pytest.raises(TypeError, match=r"\(x,\)"):
        capture(torch.sin, X)


def test_threads_take_turns():
    errors: list[BaseException] = []

    def go(i: int) -> None:
        try:
            capture(lambda x: (net(x) + i).relu(), (X,))
        except BaseException as error:  # noqa: BLE001 - the test's finding
            errors.append(error)

    threads = [threading.Thread(target=go, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_job_comes_alone():
    with pytest.raises(TypeError, match="Job"):
        compile_for(Job(torch.sin, (X,)), (X,), topology="v5e:2x2")
