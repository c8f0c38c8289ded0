"""What every random kernel may use; it is understood once, and not with each of them."""

from __future__ import annotations

import cubepy as cb


@cb.struct
class Pair:
    low: cb.f32
    high: cb.f32

    def sum(self):
        return self.low + self.high

    def pushed(self, v, m):
        """Rebinds its own self, and leaves early."""
        for k in range(m % 4):
            if v > self.low:
                self = Pair(self.high, v * 0.5)
                if k == 2:
                    return Pair(v, self.low)
            v = v - 0.25
        return self

    def __add__(self, other):
        return Pair(self.low + other.high, self.high - other.low)

    def __mul__(self, v):
        if v > 1:
            return Pair(self.high, v - self.low)
        return Pair(self.low * v, self.high)

    def __rsub__(self, v):
        return Pair(v - self.low, self.high)

    def __neg__(self):
        return Pair(-self.high, self.low)

    def __lt__(self, other):
        if self.low == other.low:
            return self.high < other.high
        return self.low < other.low

    def __eq__(self, other):
        return self.low == other.low and self.high == other.high

    def __getitem__(self, k):
        return self.low if k % 2 == 0 else self.high


@cb.struct
class Box:
    pair: Pair
    at: cb.Any
    code: cb.Comptime[int] = 2


@cb.func
def branchy(u, v):
    if u > v:
        return u - v
    elif u < -v:
        return v * 0.5
    return u


@cb.func
def steps(m, limit):
    m = m % 7
    for j in range(12):
        if m == limit % 3:
            return j
        m = (m * 3 + 1) % 11
        if m > 9:
            break
    return m


@cb.func
def marked(keep, k, v):
    """Gives a value on some paths only; nobody uses it."""
    for j in range(k % 3):
        if v > 0.5 + j:
            keep[j] = v * 0.25
            return v
        if v < -1:
            return
    keep[k % 2] += 0.125


@cb.func
def met(s, t, v):
    """What a neighbour in the cube gave."""
    s[t] = v
    cb.sync_cube()
    found = s[(t + 1) % cb.CUBE_DIM]
    cb.sync_cube()
    if found > 100 or found < -100:
        return v
    return found
