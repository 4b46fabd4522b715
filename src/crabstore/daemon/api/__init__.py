"""What the daemon can be asked over HTTP: a table of operations, and one module a noun."""
