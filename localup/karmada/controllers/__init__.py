"""The controllers of the stand-in, each like the one of Karmada with the same name."""
