"""Programs: functions of tensors that are traced once and run as one call of machine code."""
