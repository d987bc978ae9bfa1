"""Models that were released: what each was when it was measured, and whether it still is."""
