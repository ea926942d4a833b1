"""Every test of torch.compile starts without what Dynamo captured before it."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _nothing_captured():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
