"""What a program's launches are laid out as, so that machine code repeats them."""
