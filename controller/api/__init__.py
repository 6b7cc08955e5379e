"""What travels: wire types with the fields we read, quantities, keys and the operators' configuration."""
