"""The decision journal: what was told to the World and what it decided, so that it can be judged again later."""
