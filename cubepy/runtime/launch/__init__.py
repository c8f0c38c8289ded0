"""The plain way of a launch: bind the arguments, find or make the code, check the memory, run."""
