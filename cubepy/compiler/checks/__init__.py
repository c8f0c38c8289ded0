"""What is proved of a program after the walk: barriers, groups of units, lanes that are there."""
