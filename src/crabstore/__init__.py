"""crabstore."""
