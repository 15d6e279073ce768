"""fumehood: run tools nobody should have to trust."""
