"""Arrays of other libraries: how they are recognised and used without a copy."""
