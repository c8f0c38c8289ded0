"""How builtins become IR, one file for a family of them; importing a file registers its rules."""
