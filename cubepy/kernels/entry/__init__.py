"""Between the caller and the first launch: arguments, options, shapes, devices, results."""
