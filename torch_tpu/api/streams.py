"""`torch.tpu`: streams and events.

`Stream` and `Event` are PyTorch's own classes: with torch_tpu loaded the accelerator is tpu, so
they make tpu streams by default, and what `torch.accelerator` hands out is an instance of them. A
PJRT device runs its programs in the order they were started; a stream is an order of programs
within it.
"""

from __future__ import annotations

from types import TracebackType

import torch

from .device import DeviceLike, _get_device_index, _lazy_init

Stream = torch.Stream
Event = torch.Event


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """The stream that work on `device` (None: the current one) is put on by this thread."""
    _lazy_init()
    return torch.accelerator.current_stream(_get_device_index(device, optional=True))


def default_stream(device: DeviceLike = None) -> torch.Stream:
    """The stream that is current unless another one was set."""
    _lazy_init()
    index = _get_device_index(device, optional=True)
    # Stream 0 of a device is its default stream by PyTorch's convention.
    return torch.Stream(
        stream_id=0, device_index=index, device_type=int(torch._C._autograd.DeviceType.PrivateUse1)
    )


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream`, and its device, current on this thread. None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager: makes a stream current and restores what was. None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            self.stream.__enter__()
        return self.stream

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            self.stream.__exit__(kind, error, traceback)


def stream(stream: torch.Stream | None) -> StreamContext:
    """``with torch.tpu.stream(s):`` puts work on `s`; None changes nothing."""
    return StreamContext(stream)
