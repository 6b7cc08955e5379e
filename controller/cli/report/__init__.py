"""What the commands say, as values: made from a snapshot, printed elsewhere."""
