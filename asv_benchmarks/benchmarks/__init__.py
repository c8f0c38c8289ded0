"""The asv suite: cases.py builds work for a library, the bench_ modules time it."""
