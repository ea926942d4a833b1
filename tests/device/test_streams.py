"""Streams, events and waiting. Data dependence orders work; these are identities and clocks."""

from __future__ import annotations

import time

import pytest
import torch


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
