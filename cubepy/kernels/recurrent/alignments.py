"""Connectionist temporal classification (Graves et al., 2006): sums over all ways to spread labels
over the steps of a sequence, in logarithms.

The states of a sequence of L labels are 2 L + 1: a blank, the first label, a blank, ..., a blank.
A way goes from a state to itself, to the next one, or over a blank to a label that differs from
the one before. A cube of one unit does a sequence.
"""

from __future__ import annotations

import math

import cubepy as cb


@cb.func
def added(a, b, c):
    """log(exp(a) + exp(b) + exp(c)), also where all are log 0."""
    most = cb.max(cb.max(a, b), c)
    base = most if most > -math.inf else cb.cast(0.0, a.dtype)
    return base + cb.log(cb.exp(a - base) + cb.exp(b - base) + cb.exp(c - base))


@cb.func
def class_of(labels, start, s, blank):
    """What a state stands for."""
    return labels[start + s // 2] if s % 2 == 1 else blank


@cb.func
def skips(labels, start, s):
    """Whether a way may go over the blank before a state."""
    second = s % 2 == 1 and s > 1
    return labels[start + s // 2] != labels[start + s // 2 - 1] if second else False


@cb.kernel
def ctc_forward(
    log: cb.Array,
    labels: cb.Array,
    sequences: cb.Array,
    blank: cb.i64,
    alpha: cb.Array,
    loss: cb.Array,
):
    """alpha[t, n, s] = the sum over all ways of sequence n that are in state s at step t;
    loss[n] = minus that over all ways. log is (T, N, C); the rows of sequences (3, N) say where the
    labels of each begin, how many steps it has and how many labels.
    """
    n = cb.CUBE_POS
    if n < loss.size:
        none = cb.cast(-math.inf, log.dtype)
        start, steps, states = sequences[0, n], sequences[1, n], 2 * sequences[2, n] + 1
        for s in range(states):
            first = s < 2 and steps > 0
            alpha[0, n, s] = log[0, n, class_of(labels, start, s, blank)] if first else none
        for t in range(1, steps):
            for s in range(states):
                a = alpha[t - 1, n, s]
                b = alpha[t - 1, n, s - 1] if s > 0 else none
                c = alpha[t - 1, n, s - 2] if skips(labels, start, s) else none
                alpha[t, n, s] = added(a, b, c) + log[t, n, class_of(labels, start, s, blank)]
        last = cb.max(steps, 1) - 1
        b = alpha[last, n, states - 2] if states > 1 else none
        total = -added(alpha[last, n, states - 1], b, none)
        loss[n] = cb.cast(0.0, log.dtype) if steps == 0 and states == 1 else total


@cb.kernel
def ctc_gradient(
    log: cb.Array,
    labels: cb.Array,
    sequences: cb.Array,
    blank: cb.i64,
    alpha: cb.Array,
    loss: cb.Array,
    given: cb.Array,
    beta: cb.Array,
    gradient: cb.Array,
):
    """gradient[t, n, c] = -given[n] times the share of the ways that are at step t in a state of
    class c. beta[n, s] is the sum over all ways on from state s, of the step that is done.
    """
    n = cb.CUBE_POS
    if n < loss.size:
        none, zero = cb.cast(-math.inf, log.dtype), cb.cast(0.0, log.dtype)
        start, steps, states = sequences[0, n], sequences[1, n], 2 * sequences[2, n] + 1
        for row in range(log.shape[0]):
            for column in range(log.shape[2]):
                gradient[row, n, column] = zero
        if given[n] != 0 and steps > 0:
            for s in range(states):
                beta[n, s] = zero if s > states - 3 else none
            for back in range(steps):
                t = steps - 1 - back
                for s in range(states):
                    if back > 0:
                        a = beta[n, s] + log[t + 1, n, class_of(labels, start, s, blank)]
                        b, c = none, none
                        if s + 1 < states:
                            k = class_of(labels, start, s + 1, blank)
                            b = beta[n, s + 1] + log[t + 1, n, k]
                        if s + 2 < states:
                            if skips(labels, start, s + 2):
                                k = class_of(labels, start, s + 2, blank)
                                c = beta[n, s + 2] + log[t + 1, n, k]
                        beta[n, s] = added(a, b, c)
                    k = class_of(labels, start, s, blank)
                    share = cb.exp(alpha[t, n, s] + beta[n, s] + loss[n])
                    gradient[t, n, k] = gradient[t, n, k] - given[n] * share
