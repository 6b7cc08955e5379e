"""Wire types of the API objects with the fields that are read, quantities, well-known names and the configuration."""
