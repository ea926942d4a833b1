"""Streams, events and waiting. Data dependence orders work; these are identities and clocks."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
import torch

MODES = list(torch.tpu.EagerMode)


class Work:
    """Products that take the device a while, and how long at least.

    A fifth of the best of some tries: on a machine that others use too, a later try may be quicker.
    Not to wait at all would be a hundred times shorter.
    """

    def __init__(self):
        self.x = torch.randn(700, 700, device="tpu")
        self.seconds = min(self.measure() for _ in range(3)) / 5
        self.milliseconds = 1000 * self.seconds

    def start(self) -> torch.Tensor:
        y = self.x
        for _ in range(4):
            y = y @ self.x
        return y

    def measure(self) -> float:
        torch.tpu.synchronize()
        begin = time.perf_counter()
        self.start().sum().item()
        return time.perf_counter() - begin


@pytest.fixture(scope="module")
def work():
    return Work()


def timed(function) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def test_streams_have_identities():
    current, default = torch.tpu.current_stream(), torch.tpu.default_stream()
    assert current == default
    first, second = torch.tpu.Stream(), torch.tpu.Stream()
    assert first != second
    assert first.device.type == "tpu"


def test_stream_context_restores_the_previous_one():
    before = torch.tpu.current_stream()
    stream = torch.tpu.Stream()
    with torch.tpu.stream(stream):
        assert torch.tpu.current_stream() == stream
        with torch.tpu.stream(None):
            assert torch.tpu.current_stream() == stream
        x = torch.ones(3, device="tpu") + 1
    assert torch.tpu.current_stream() == before
    before.wait_stream(stream)
    assert x.sum().item() == 6
    torch.tpu.set_stream(stream)
    assert torch.tpu.current_stream() == stream
    torch.tpu.set_stream(before)


def test_accelerator_api():
    assert torch.accelerator.current_accelerator().type == "tpu"
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == torch.tpu.device_count()
    assert torch.accelerator.current_stream() == torch.tpu.current_stream()
    torch.accelerator.synchronize()
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == 1
    torch.accelerator.set_device_index(0)


def test_events_measure_time():
    x = torch.ones(256, 256, device="tpu")
    (x @ x).sum().item()
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    begin = time.perf_counter()
    start.record()
    for _ in range(20):
        x = (x @ x) * 0.001
    end.record()
    end.synchronize()
    outer = 1000 * (time.perf_counter() - begin)
    assert start.query()
    assert end.query()
    assert 0 < start.elapsed_time(end) <= outer + 1


def test_event_of_a_stream():
    stream = torch.tpu.Stream()
    event = stream.record_event()
    torch.tpu.current_stream().wait_event(event)
    event.wait()
    event.synchronize()
    assert event.query()


def test_elapsed_time_needs_recorded_events():
    first, second = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    with pytest.raises((RuntimeError, ValueError), match="recorded"):
        first.elapsed_time(second)


def test_synchronize_means_ready():
    x = torch.randn(256, 256, device="tpu")
    for _ in range(10):
        x = x @ x * 0.01
    torch.tpu.synchronize()
    assert torch.tpu.current_stream().query()
    torch.tpu.current_stream().synchronize()
    torch.tpu.synchronize(1)
    torch.tpu.synchronize("tpu:0")


def test_streams_of_the_second_device():
    stream = torch.tpu.Stream(device="tpu:1")
    assert stream.device.index == 1
    with torch.tpu.stream(stream):
        assert torch.tpu.current_device() == 1
        assert str(torch.ones(1, device="tpu").device) == "tpu:1"
    assert torch.tpu.current_device() == 0


def test_record_stream():
    x = torch.ones(3, device="tpu")
    x.record_stream(torch.tpu.Stream())
    assert x.sum().item() == 3


def test_a_stream_belongs_to_its_thread():
    stream, seen = torch.tpu.Stream(), []
    with torch.tpu.stream(stream):
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.tpu.default_stream()]


def test_stream_gives_a_stream_context():
    stream = torch.tpu.Stream()
    context = torch.tpu.stream(stream)
    assert isinstance(context, torch.tpu.StreamContext)
    with pytest.raises(ZeroDivisionError), context as current:
        assert current == stream
        1 / 0  # noqa: B018
    assert torch.tpu.current_stream() == torch.tpu.default_stream()


@pytest.mark.parametrize("mode", MODES)
def test_synchronize_waits_for_everything(mode, work):
    with torch.tpu.set_eager_mode(mode):
        torch.tpu.synchronize()

        def run():
            y = work.start()
            torch.tpu.synchronize()
            assert torch.tpu.current_stream().query()
            return y

        assert timed(run) > work.seconds


@pytest.mark.parametrize("wait", ["synchronize", "stream", "event"])
def test_waiting_includes_work_whose_result_nobody_holds(wait, work):
    """What `f(x); synchronize()` measures is how long f takes."""
    torch.tpu.synchronize()
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)

    def run():
        start.record()
        work.start()
        end.record()
        if wait == "synchronize":
            torch.tpu.synchronize()
        elif wait == "stream":
            torch.tpu.current_stream().synchronize()
        else:
            end.synchronize()

    assert timed(run) > work.seconds
    assert start.query()
    assert end.query()
    assert start.elapsed_time(end) > work.milliseconds


def test_many_results_that_nobody_holds(work):
    torch.tpu.synchronize()
    for _ in range(3):
        y = work.start()
        for _ in range(200):
            y + 1
        del y
    torch.tpu.synchronize()
    assert torch.tpu.current_stream().query()


def test_a_failure_that_nobody_asks_for_is_not_raised(work):
    def values(of: torch.Tensor, factor: float):
        torch.ops.aten._linalg_svd(of[:8, :8] * factor, False, False)

    values(work.x, 1.0)  # now the programs are compiled, and the next calls do not wait
    torch.tpu.synchronize()
    # Raised by the call itself if this thread was stopped until the product was there.
    with contextlib.suppress(torch.linalg.LinAlgError):
        values(work.start(), float("nan"))
    torch.tpu.synchronize()
    assert torch.tpu.current_stream().query()


@pytest.mark.parametrize("mode", MODES)
def test_an_event_lasts_as_long_as_the_work_before_it(mode, work):
    with torch.tpu.set_eager_mode(mode):
        torch.tpu.synchronize()
        start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
        start.record()
        y = work.start()
        end.record()
        end.synchronize()
        assert end.query()
        assert start.elapsed_time(end) > work.milliseconds
        assert end.elapsed_time(start) == -start.elapsed_time(end)
        del y


@pytest.mark.parametrize("mode", [torch.tpu.EagerMode.STRICT, torch.tpu.EagerMode.DEFER_AND_FUSE])
def test_query_is_false_while_work_runs(mode, work):
    """Seen in one of several tries: a busy machine may stop this thread until the work is done."""

    def try_once() -> list[bool]:
        torch.tpu.synchronize()
        event, y = torch.tpu.Event(), work.start()
        event.record()
        seen = [event.query(), torch.tpu.current_stream().query()]
        event.synchronize()
        assert event.query()
        del y
        return seen

    with torch.tpu.set_eager_mode(mode):
        assert any(try_once() == [False, False] for _ in range(10))


def test_waiting_for_an_event_orders_streams(work):
    first, second = torch.tpu.Stream(), torch.tpu.Stream()
    begin, done = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    after = torch.tpu.Event(enable_timing=True)
    torch.tpu.synchronize()
    begin.record(first)
    with torch.tpu.stream(first):
        y = work.start()
        done.record(first)
    with torch.tpu.stream(second):
        second.wait_event(done)
        z = y * 2
        after.record(second)
    after.synchronize()
    assert done.query()
    assert begin.elapsed_time(after) >= begin.elapsed_time(done) > work.milliseconds
    torch.testing.assert_close(z.cpu(), y.cpu() * 2)


def test_waiting_for_a_stream_orders_streams(work):
    stream = torch.tpu.Stream()
    with torch.tpu.stream(stream):
        y = work.start()
    torch.tpu.current_stream().wait_stream(stream)
    event = torch.tpu.current_stream().record_event()
    event.wait(stream)
    event.synchronize()
    assert stream.query()
    torch.testing.assert_close(y.cpu(), work.start().cpu())


def test_an_event_can_be_recorded_again(work):
    torch.tpu.synchronize()
    first, again = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    first.record()
    again.record()
    y = work.start()
    again.record()
    again.synchronize()
    assert first.elapsed_time(again) > work.milliseconds
    del y


def test_elapsed_time_needs_timing():
    timed_event, event = torch.tpu.Event(enable_timing=True), torch.tpu.Event()
    timed_event.record()
    event.record()
    with pytest.raises(ValueError, match="enable_timing"):
        timed_event.elapsed_time(event)


def test_wrong_arguments():
    with pytest.raises(RuntimeError, match="tpu:9"):
        torch.tpu.synchronize(9)
    with pytest.raises(ValueError, match="cpu"):
        torch.tpu.current_stream("cpu")
    with pytest.raises(TypeError, match="position"):
        torch.tpu.Event(True)
    with pytest.raises(RuntimeError, match="tpu:9"):
        torch.tpu.Event().record(torch.tpu.Stream("tpu:9"))


def test_synchronize_of_one_device_does_not_wait_for_another(work):
    torch.tpu.synchronize()
    event, y = torch.tpu.Event(), work.start()
    event.record()
    torch.tpu.synchronize(1)
    assert torch.tpu.current_stream(1).query()
    event.synchronize()
    del y
