"""Threads that run the cubes of a launch: the pool, how it shares work, and numba's layers in its
place.
"""
