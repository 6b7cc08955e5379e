"""Forecasts of start times: run times learned from past runs, and the engine on virtual time."""
