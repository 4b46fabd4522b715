"""crabdb."""
