"""Queues of work on devices: streams, events, and graphs of recorded work."""
