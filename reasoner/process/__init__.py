"""Child processes that die with their parent, their progress, and locks that die with their owner."""
