"""Speech to text: windows, timestamps, segments."""
