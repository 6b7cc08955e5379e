"""Whether our webhook is registered as it should be: without it, nothing is paused."""
