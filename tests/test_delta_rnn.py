"""The Delta RNN beyond the common guarantees: what it is when its recurrence is off, and one step by hand."""

import torch

from fastweights import Cell, scan
from fastweights.testing.samples import Shape, sample_inputs
from fastweights.testing.tolerance import error, tolerance

CELL, DELTA = Cell.from_name("delta-rnn"), Cell.from_name("delta")
SHAPE = Shape(2, 17, 3, 6, 5)
EXACT = tolerance(torch.float64).forward


def test_without_recurrent_rates_it_is_deltanet():
    x = sample_inputs(CELL, SHAPE)
    y, _ = scan(CELL, x._replace(recurrent_beta=torch.zeros_like(x.recurrent_beta)))
    want, _ = scan(DELTA, DELTA.Inputs(x.q, x.k, x.v, x.beta))
    assert error(y, want) < EXACT


def test_first_recurrent_query_is_uniform():
    x = sample_inputs(CELL, Shape(1, 1, 1, 6, 5))
    y, state = scan(CELL, x)
    feed_forward, _ = scan(DELTA, DELTA.Inputs(x.q, x.k, x.v, x.beta))
    assert error(y - feed_forward, state.R.mean(-1).unsqueeze(1)) < EXACT


def test_recurrent_part_retrieves_what_was_written_for_the_last_output():
    """Written with the softmax of the last output as key and rate 1 / |key|^2, R returns the value exactly."""
    x = sample_inputs(CELL, Shape(1, 2, 1, 6, 5))
    _, state = scan(CELL, type(x)(*(leaf[:, :1] for leaf in x)))
    key = state.y.softmax(-1)
    second = type(x)(*(leaf[:, 1:] for leaf in x))
    second = second._replace(recurrent_k=state.y.unsqueeze(1), recurrent_beta=(1 / key.square().sum(-1)).unsqueeze(1))
    y, after = scan(CELL, second, state)
    read = after.W @ second.q[:, 0].unsqueeze(-1)
    assert error(y[:, 0], read.squeeze(-1) + second.recurrent_v[:, 0]) < EXACT
