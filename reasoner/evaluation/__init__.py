"""Evaluating any model on any data set, and comparing two evaluations."""
