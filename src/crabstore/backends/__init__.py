"""The engines: five methods each, plus what the engine does better."""
