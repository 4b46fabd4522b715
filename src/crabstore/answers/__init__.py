"""What the command line and the daemon answer with alike: records as JSON, failures, what a name stands for."""
