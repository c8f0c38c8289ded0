"""Steps of optimizers as functions of elements: what a parameter and its states are next.

`numbers` are learning rates, decays and the like: read when the step runs, never compiled in.
`sign` is -1 where the gradient is climbed.
"""

from __future__ import annotations

import cubepy as cb


@cb.func
def sgd(numbers, p, g):
    """Gradient descent. numbers: sign, weight decay, lr."""
    d = g * numbers[0] + p * numbers[1]
    return (p - d * numbers[2],)


@cb.func
def average(numbers, p, g):
    """A moving average. numbers: the share of the new value; of 1 it is that, whatever p is."""
    return (cb.select(numbers[0] == 1, g, p + (g - p) * numbers[0]),)


@cb.func
def sgd_momentum(numbers, p, g, velocity):
    """The same with momentum (Sutskever et al., 2013). numbers: sign, weight decay, lr; momentum,
    share of the new gradient; how much of the gradient and of the velocity makes the step.
    """
    d = g * numbers[0] + p * numbers[1]
    new = velocity * numbers[3] + d * numbers[4]
    return p - (d * numbers[5] + new * numbers[6]) * numbers[2], new


@cb.func
def adam(numbers, p, g, m, v):
    """Adam (Kingma and Ba, 2015). numbers: sign, weight decay, what is kept of p (AdamW: Loshchilov
    and Hutter, 2019), beta1, 1 - beta1, beta2, 1 - beta2, lr / (1 - beta1 ** t),
    1 / sqrt(1 - beta2 ** t), eps.
    """
    d = g * numbers[0] + p * numbers[1]
    first = m * numbers[3] + d * numbers[4]
    second = v * numbers[5] + d * d * numbers[6]
    size = cb.sqrt(second) * numbers[8] + numbers[9]
    return p * numbers[2] - first * numbers[7] / size, first, second


@cb.func
def adam_amsgrad(numbers, p, g, m, v, most):
    """Adam whose second moment never falls (Reddi et al., 2018)."""
    d = g * numbers[0] + p * numbers[1]
    first = m * numbers[3] + d * numbers[4]
    second = v * numbers[5] + d * d * numbers[6]
    top = cb.nan_max(most, second)
    size = cb.sqrt(top) * numbers[8] + numbers[9]
    return p * numbers[2] - first * numbers[7] / size, first, second, top


@cb.func
def adagrad(numbers, p, g, total):
    """Adagrad (Duchi et al., 2011). numbers: sign, weight decay, lr, eps."""
    d = g * numbers[0] + p * numbers[1]
    new = total + d * d
    return p - d * numbers[2] / (cb.sqrt(new) + numbers[3]), new


@cb.func
def rmsprop(numbers, p, g, square):
    """RMSprop (Hinton, 2012). numbers: sign, weight decay, lr, eps, alpha, 1 - alpha, momentum."""
    d = g * numbers[0] + p * numbers[1]
    second = square * numbers[4] + d * d * numbers[5]
    return p - d / (cb.sqrt(second) + numbers[3]) * numbers[2], second


@cb.func
def rmsprop_momentum(numbers, p, g, square, velocity):
    """RMSprop with momentum."""
    d = g * numbers[0] + p * numbers[1]
    second = square * numbers[4] + d * d * numbers[5]
    along = velocity * numbers[6] + d / (cb.sqrt(second) + numbers[3])
    return p - along * numbers[2], second, along


@cb.func
def rmsprop_centered(numbers, p, g, square, mean):
    """RMSprop by the variance instead of the mean square (Graves, 2013)."""
    d = g * numbers[0] + p * numbers[1]
    second = square * numbers[4] + d * d * numbers[5]
    first = mean * numbers[4] + d * numbers[5]
    spread = cb.sqrt(second - first * first) + numbers[3]
    return p - d / spread * numbers[2], second, first


@cb.func
def rmsprop_centered_momentum(numbers, p, g, square, mean, velocity):
    """The same with momentum."""
    d = g * numbers[0] + p * numbers[1]
    second = square * numbers[4] + d * d * numbers[5]
    first = mean * numbers[4] + d * numbers[5]
    spread = cb.sqrt(second - first * first) + numbers[3]
    along = velocity * numbers[6] + d / spread
    return p - along * numbers[2], second, first, along


@cb.func
def nadam(numbers, p, g, m, v):
    """Adam with Nesterov's momentum (Dozat, 2016). numbers: sign, weight decay, what is kept of p,
    beta1, 1 - beta1, beta2, 1 - beta2, the rate of the gradient, that of the first moment,
    1 / sqrt(1 - beta2 ** t), eps.
    """
    d = g * numbers[0] + p * numbers[1]
    first = m * numbers[3] + d * numbers[4]
    second = v * numbers[5] + d * d * numbers[6]
    size = cb.sqrt(second) * numbers[9] + numbers[10]
    return p * numbers[2] - (d * numbers[7] + first * numbers[8]) / size, first, second


@cb.func
def radam(numbers, p, g, m, v):
    """Adam whose steps are rectified (Liu et al., 2019). numbers: sign, weight decay, what is kept
    of p, beta1, 1 - beta1, beta2, 1 - beta2, the rate, eps, and 1 where the second moment counts, 0
    where too few gradients came.
    """
    d = g * numbers[0] + p * numbers[1]
    first = m * numbers[3] + d * numbers[4]
    second = v * numbers[5] + d * d * numbers[6]
    size = (cb.sqrt(second) + numbers[8]) * numbers[9] + (1 - numbers[9])
    return p * numbers[2] - first * numbers[7] / size, first, second


@cb.func
def adamax(numbers, p, g, m, largest):
    """Adam by the largest gradient (Kingma and Ba, 2015). numbers: sign, weight decay, beta1,
    1 - beta1, beta2, lr / (1 - beta1 ** t), eps.
    """
    d = g * numbers[0] + p * numbers[1]
    first = m * numbers[2] + d * numbers[3]
    top = cb.nan_max(largest * numbers[4], cb.abs(d) + numbers[6])
    return p - first * numbers[5] / top, first, top


@cb.func
def adadelta(numbers, p, g, square, moved):
    """Adadelta (Zeiler, 2012). numbers: sign, weight decay, lr, eps, rho, 1 - rho."""
    d = g * numbers[0] + p * numbers[1]
    second = square * numbers[4] + d * d * numbers[5]
    by = cb.sqrt(moved + numbers[3]) / cb.sqrt(second + numbers[3]) * d
    return p - by * numbers[2], second, moved * numbers[4] + by * by * numbers[5]


@cb.func
def rprop(numbers, p, g, before, size):
    """Resilient backpropagation (Riedmiller and Braun, 1993). numbers: sign, by what a step shrinks
    and grows, the least and the largest step.
    """
    d = g * numbers[0]
    agreed = d * before
    factor = cb.select(agreed > 0, numbers[2], cb.select(agreed < 0, numbers[1], 1.0))
    new = cb.min(cb.max(size * factor, numbers[3]), numbers[4])
    kept = cb.select(agreed < 0, 0.0, d)
    way = cb.select(kept > 0, 1.0, cb.select(kept < 0, -1.0, 0.0))
    return p - way * new, kept, new


@cb.func
def asgd(numbers, p, g, average):
    """Averaged gradient descent (Polyak and Juditsky, 1992). numbers: sign, weight decay, what is
    kept of p, the rate, the share of p in the average.
    """
    d = g * numbers[0] + p * numbers[1]
    new = p * numbers[2] - d * numbers[3]
    return new, average + (new - average) * numbers[4]
