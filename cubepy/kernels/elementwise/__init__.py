"""Any function of the elements of arrays, with broadcasting, in one pass over memory."""
