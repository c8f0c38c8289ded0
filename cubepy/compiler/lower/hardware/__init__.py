"""Rules of matrix units, asynchronous copies and clusters: each becomes a `Hardware` statement."""
