"""The daemon: one process that holds the store, runs its agents, and serves many clients. `crabstore serve`."""
