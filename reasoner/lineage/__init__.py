"""Where an artifact came from and why a stage would run: see `calls`, `tree`, `cause`."""
