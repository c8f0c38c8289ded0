"""One walk over a kernel: the parts of the walker, each with what it walks."""
