"""The price of an option by simulation: every unit draws random numbers of its own."""

from __future__ import annotations

import math

import numpy as np

import cubepy as cb


@cb.kernel
def payoffs(spot, strike, rate, sigma, years, seed, out: cb.Array, *, pairs: cb.Comptime[int]):
    """out[i] is the mean payoff of 2 * pairs paths; the same seed gives the same paths anywhere."""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        drift, step = (rate - 0.5 * sigma * sigma) * years, sigma * cb.sqrt(years)
        total = cb.f32(0)
        for k in range(pairs):
            first, second = cb.philox((i, k), (seed,))[:2]
            for z in cb.to_normal(first, second):
                total += max(spot * cb.exp(drift + step * z) - strike, 0)
        out[i] = total / (2 * pairs) * cb.exp(-rate * years)


def exact(spot: float, strike: float, rate: float, sigma: float, years: float) -> float:
    """The formula of Black and Scholes (1973)."""
    step = sigma * math.sqrt(years)
    first = (math.log(spot / strike) + (rate + sigma * sigma / 2) * years) / step
    low, high = (0.5 * math.erfc(-x / math.sqrt(2)) for x in (first - step, first))
    return spot * high - strike * math.exp(-rate * years) * low


def main() -> None:
    """Run it and compare with the formula."""
    option = 100.0, 105.0, 0.03, 0.2, 1.0
    out = np.empty(1000, np.float32)
    payoffs[cb.over(out)](*option, 42, out, pairs=100)
    price, want = out.mean(), exact(*option)
    assert abs(price - want) < 0.1
    print(f"{price:.2f} by {200 * out.size} paths, {want:.2f} by the formula")


if __name__ == "__main__":
    main()
