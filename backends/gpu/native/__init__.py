"""What GPUs' drivers offer, under one set of names: contexts, modules, memory, copies, streams,
events, graphs, and what goes wrong there.
"""
