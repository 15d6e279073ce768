"""Tools that fumehood ships for its own use. They run in a cage like any other and import nothing of ours."""
