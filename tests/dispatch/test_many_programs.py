"""A process keeps a bounded number of programs: each takes memory mappings, which are bounded."""

import gc
import threading

import torch

from torch_tpu import _core
from torch_tpu.program import cache


def _mappings() -> int:
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)


def _many(first: int, count: int) -> None:
    for n in range(first, first + count):
        torch.ones(n, device="tpu").neg_()


def test_programs_that_are_given_up_are_freed():
    _many(1000, 60)
    before = _mappings()
    for round_ in range(4):
        _many(2000 + 100 * round_, 60)
        _core.clear_caches()
        torch.ones(3, device="tpu").neg_()  # what was given up is freed at a call
    cache.memory.clear()
    gc.collect()
    _core.clear_caches()
    assert torch.ones(3, device="tpu").neg_().tolist() == [-1, -1, -1]
    assert _core.cache_stats()["entries"] < 20
    assert _mappings() < before + 200


def test_giving_up_programs_while_others_run_them():
    failures = []

    def work():
        try:
            for n in range(150):
                x = torch.full((n % 7 + 1,), 2.0, device="tpu")
                assert (x * x + 1).sum().item() == 5 * (n % 7 + 1)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        _core.clear_caches()
        torch.ones(2, device="tpu").neg_()
    assert failures == []
