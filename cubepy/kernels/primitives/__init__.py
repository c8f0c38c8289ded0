"""What kernels of every family are made of: functions of values, lines and units, pipelines."""
