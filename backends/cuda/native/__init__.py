"""What the driver offers: contexts, modules, memory, copies, streams, events, graphs, and what goes
wrong there.
"""
