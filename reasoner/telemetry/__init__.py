"""Where numbers go besides the run's own files."""
