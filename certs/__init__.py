"""The webhook's certificates: a CA of its own, the serving certificate, and where they are kept."""
