"""Serves the decision log of a controller: a process of its own in the controller's pod, which only reads the files."""
