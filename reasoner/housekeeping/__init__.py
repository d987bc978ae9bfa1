"""What lies in a home folder, what is in use, and what nothing reaches: see `live`, `reach`, `sweep`."""
