"""Checks that the webhook configurations are registered; without them no binding is suspended."""
