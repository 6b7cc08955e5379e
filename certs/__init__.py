"""Issues, renews and publishes the certificates of the webhook: its own CA and the serving certificate."""
