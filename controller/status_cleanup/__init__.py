"""What an eviction leaves behind that Karmada does not put right."""
