"""Fusion: a graph of ops becomes one of fewer, whose launches do several ops each.

`grouping` finds groups, `written` writes the function of one, `fuse` puts them into the graph. A
fused node is an op as any other: plain data, with a rule.
"""
