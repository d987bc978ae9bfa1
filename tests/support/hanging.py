"""An answer that no limit of a test outlasts."""

HANGS = r"\boxed{\int_0^1 \frac{\sin(x^5+x+1)}{\cos(x^7+\ln(x+2))} dx}"
"""Sympy looks for its exact value for over a minute of processor time (sympy 1.14, 2.4 GHz), as math-verify does."""
