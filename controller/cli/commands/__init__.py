"""The commands: each builds its report from the input and prints it."""
