"""Connectionist temporal classification: the CTC loss and its gradient.

Both passes are one `while` loop over time on (batch, 2 * labels + 1) log probabilities of the
states "blank, label, blank, label, ..., blank". Lengths may be lists (then they are constants of
the program) or run-time values. States past the end of a sample hold values nobody reads: the
recursion only moves from a state to later ones. `_ctc_loss.Tensor` has a data-dependent result
shape, so it reads its lengths first.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import expected, op, procedure


def _lengths(lengths) -> Value:
    """(batch, 1) int64, from a list or a value."""
    if not isinstance(lengths, Value):
        lengths = hlo.array(list(lengths), torch.int64)
    return hlo.reshape(lengths.to(torch.int64), (lengths.numel, 1))


def _label_table(targets: Value, target_lengths: Value, batch: int, labels: int) -> Value:
    """Targets as (batch, labels), from rows or from one concatenated row; the rest is arbitrary."""
    targets = targets.to(torch.int64)
    if labels == 0 or targets.numel == 0:
        return hlo.constant(0, torch.int64, (batch, labels))
    if targets.ndim == 2:
        return hlo.slice_dim(targets, 1, 0, labels)
    begins = hlo.cumulative(target_lengths, "add", 0) - target_lengths
    return hlo.take(targets, hlo.iota((batch, labels), 1) + begins, 0)


def _states(labels: Value, blank: int) -> tuple[Value, Value]:
    """(class of each state, whether a path may skip to it over the blank before it)."""
    batch, count = labels.shape
    pair = (batch, count, 2)
    blanks = hlo.constant(blank, torch.int64, pair)
    paired = hlo.select(hlo.iota(pair, 2) == 1, hlo.broadcast_in_dim(labels, pair, [0, 1]), blanks)
    blanks = hlo.constant(blank, torch.int64, (batch, 1))
    states = hlo.concatenate([hlo.reshape(paired, (batch, 2 * count)), blanks], 1)
    return states, _shifted(states, 2, blank) != states


def _shifted(x: Value, by: int, fill) -> Value:
    """``x`` moved right by ``by`` states (left if negative), filled with ``fill``."""
    low, high = [0, by], [0, -by]
    if x.shape[1] <= abs(by):
        return hlo.full_like(x, fill)
    return hlo.pad(x, hlo.constant(fill, x.dtype), low, high)


def _log_sum(*terms: Value) -> Value:
    """log(sum(exp(terms))), also where every term is -inf."""
    largest = terms[0]
    for term in terms[1:]:
        largest = hlo.maximum(largest, term)
    largest = hlo.select(largest == -math.inf, hlo.zeros_like(largest), largest)
    total = hlo.exp(terms[0] - largest)
    for term in terms[1:]:
        total = total + hlo.exp(term - largest)
    return hlo.log(total) + largest


def _emissions(log_probs: Value, states: Value) -> Value:
    """(time, batch, state) log probability of the class of each state."""
    time, batch, _ = log_probs.shape
    return hlo.gather(
        log_probs,
        states,
        offset_dims=[0],
        collapsed=[2],
        index_map=[2],
        index_vector_dim=2,
        slice_sizes=[time, 1, 1],
        shape=(time, *states.shape),
        batching=[1],
        index_batching=[0],
    )


def _at(x: Value, time: Value) -> Value:
    zero = hlo.constant(0, torch.int64)
    return hlo.reshape(hlo.dynamic_slice(x, [time, zero, zero], [1, *x.shape[1:]]), x.shape[1:])


def _put(x: Value, row: Value, time: Value) -> Value:
    zero = hlo.constant(0, torch.int64)
    return hlo.dynamic_update_slice(x, hlo.reshape(row, (1, *row.shape)), [time, zero, zero])


def _last_states(like: Value, target_lengths: Value) -> Value:
    """0 at the states in which a path may end (last blank, last label), -inf elsewhere."""
    state = hlo.iota(like.shape, 1)
    ends = 2 * target_lengths
    is_last = (state == ends) | ((state == ends - 1) & (target_lengths > 0))
    return hlo.where(is_last, 0.0, -math.inf).to(like.dtype)


def _forward(emissions: Value, may_skip: Value, input_lengths: Value) -> tuple[Value, Value]:
    """(all alphas (time, batch, state), the alpha at the last frame of each sample)."""
    shape, dtype = emissions.shape, emissions.dtype
    nothing = hlo.constant(-math.inf, dtype, shape[1:])
    first_states = hlo.iota(shape[1:], 1) < 2

    def step(time, alpha, last, alphas):
        moved = _log_sum(
            alpha,
            _shifted(alpha, 1, -math.inf),
            hlo.where(may_skip, _shifted(alpha, 2, -math.inf), -math.inf).to(dtype),
        )
        start = hlo.where(first_states, 0.0, -math.inf).to(dtype)
        is_first = hlo.expand(time == 0, moved.shape)
        alpha = hlo.select(is_first, start, moved) + _at(emissions, time)
        ends_here = hlo.expand(input_lengths - 1 == time, alpha.shape)
        last = hlo.select(ends_here, alpha, last)
        return [time + 1, alpha, last, _put(alphas, alpha, time)]

    zero = hlo.constant(0, torch.int64)
    values = [zero, nothing, nothing, hlo.constant(-math.inf, dtype, shape)]
    _, _, last, alphas = hlo.while_loop(lambda time, *_: time < shape[0], step, values)
    return alphas, last


@op("aten::_ctc_loss")
def _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, zero_infinity=False):
    """(negative log likelihood, log alpha (batch, time, state)); infinities are kept."""
    del zero_infinity
    batch, count = log_probs.shape[1], expected()[1].shape[2] // 2
    input_lengths, target_lengths = _lengths(input_lengths), _lengths(target_lengths)
    labels = _label_table(targets, target_lengths, batch, count)
    states, may_skip = _states(labels, blank)
    emissions = _emissions(log_probs, states)
    alphas, last = _forward(emissions, may_skip, input_lengths)
    ends = last + _last_states(last, target_lengths)
    # With no frame at all only the empty target is possible.
    empty = (input_lengths == 0) & (target_lengths == 0) & (hlo.iota(ends.shape, 1) == 0)
    ends = hlo.where(empty, 0.0, ends).to(ends.dtype)
    largest = hlo.reduce(ends, "maximum", [1], keepdim=True)
    largest = hlo.select(largest == -math.inf, hlo.zeros_like(largest), largest)
    total = hlo.reduce(hlo.exp(ends - hlo.expand(largest, ends.shape)), "add", [1], keepdim=True)
    likelihood = hlo.reshape(-(hlo.log(total) + largest), (batch,))
    return likelihood, hlo.transpose(alphas, [1, 0, 2])


def _backward(emissions: Value, may_skip: Value, input_lengths: Value, ends: Value) -> Value:
    """All betas (time, batch, state), from the last frame of each sample to the first."""
    shape, dtype = emissions.shape, emissions.dtype
    nothing = hlo.constant(-math.inf, dtype, shape[1:])

    def step(time, beta, betas):
        skipped = hlo.where(may_skip, beta, -math.inf).to(dtype)
        moved = _log_sum(beta, _shifted(beta, -1, -math.inf), _shifted(skipped, -2, -math.inf))
        ends_here = hlo.expand(input_lengths - 1 == time, beta.shape)
        beta = hlo.select(ends_here, ends, moved) + _at(emissions, time)
        return [time - 1, beta, _put(betas, beta, time)]

    start = hlo.constant(shape[0] - 1, torch.int64)
    values = [start, nothing, hlo.constant(-math.inf, dtype, shape)]
    return hlo.while_loop(lambda time, *_: time >= 0, step, values)[2]


def _summed_by_class(posterior: Value, states: Value, classes: int) -> Value:
    """(time, batch, class) sums of (time, batch, state): one window over time per state."""
    time, batch, count = posterior.shape
    sample = hlo.iota(states.shape, 0)
    index = hlo.concatenate([hlo.unsqueeze(sample, 2), hlo.unsqueeze(states, 2)], 2)
    summed = hlo.scatter(
        hlo.constant(0, posterior.dtype, (batch, classes, time)),
        index,
        hlo.transpose(posterior, [1, 2, 0]),
        "add",
        window_dims=[2],
        inserted=[0, 1],
        index_map=[0, 1],
        index_vector_dim=2,
    )
    return hlo.transpose(summed, [2, 0, 1])


@op("aten::_ctc_loss_backward", "aten::_ctc_loss_backward.Tensor")
def _ctc_loss_backward(
    grad,
    log_probs,
    targets,
    input_lengths,
    target_lengths,
    neg_log_likelihood,
    log_alpha,
    blank,
    zero_infinity=False,
):
    """exp(log_probs) less the posterior of each class at each frame."""
    (time, batch, classes), count = log_probs.shape, log_alpha.shape[2] // 2
    input_lengths, target_lengths = _lengths(input_lengths), _lengths(target_lengths)
    labels = _label_table(targets, target_lengths, batch, count)
    states, may_skip = _states(labels, blank)
    emissions = _emissions(log_probs, states)
    ends = _last_states(_at(emissions, hlo.constant(0, torch.int64)), target_lengths)
    betas = _backward(emissions, may_skip, input_lengths, ends)
    through = hlo.transpose(log_alpha, [1, 0, 2]) + betas
    loss = hlo.reshape(neg_log_likelihood, (1, batch, 1))
    posterior = hlo.exp(through - emissions + hlo.expand(loss, through.shape))
    # A state on no path (also one past the end of the sample) has no posterior.
    posterior = hlo.select(betas == -math.inf, hlo.zeros_like(posterior), posterior)
    posterior = hlo.select(through == -math.inf, hlo.zeros_like(posterior), posterior)
    result = hlo.exp(log_probs) - _summed_by_class(posterior, states, classes)
    impossible = 0.0 if zero_infinity else math.nan
    result = hlo.where(loss == math.inf, impossible, result * hlo.reshape(grad, (1, batch, 1)))
    frame = hlo.iota((time, batch, 1), 0)
    inside = frame < hlo.reshape(input_lengths, (1, batch, 1))
    return hlo.where(inside, result, 0.0).to(log_probs.dtype)


@procedure("aten::_ctc_loss.Tensor")
def _ctc_loss_Tensor(
    log_probs, targets, input_lengths, target_lengths, blank=0, zero_infinity=False
):
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return torch.ops.aten._ctc_loss(log_probs, targets, *lengths, blank, zero_infinity)
