"""Verdicts on answers: numbers, worked solutions with three strategies, and mathematics in LaTeX."""
