"""`training_step`: forward pass, backward pass and optimizer as one function to capture.

Nothing here is about capturing: the step is ordinary PyTorch, and runs eagerly as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn


class TrainingStep:
    """A function of a batch that makes one step of training and returns the loss.

    Attributes:
      model, optimizer: what is trained, by what.
      loss: function of the model and the batch.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable):
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.__name__ = f"train_{type(model).__name__}"

    def __call__(self, *batch, **named):
        loss = self.loss(self.model, *batch, **named)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | type[torch.optim.Optimizer],
    loss: Callable[..., torch.Tensor],
    options: Mapping[str, Any] | None = None,
) -> TrainingStep:
    """The step of training ``model``, for `capture` and `compile`.

    ``optimizer`` is one over the model's parameters, which may be on "meta", or a class, of which
    one is made with ``options``. ``loss(model, *batch)`` gives the number to make smaller.

    >>> step = training_step(model, torch.optim.AdamW, loss, {"lr": 1e-4})
    """
    if isinstance(optimizer, type):
        optimizer = optimizer(model.parameters(), **(options or {}))
    elif options:
        raise TypeError("options= are for an optimizer given as a class; this one is made already")
    return TrainingStep(model, optimizer, loss)
