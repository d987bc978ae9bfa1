"""Looks back at the rewards of a run: are they what the verifiers say now, and does anybody else agree?

`runs` finds a run and its attempts, `opinions` judges them again and asks for a second opinion, `findings` counts,
`lines` shows. Nothing is generated and nothing is written.
"""
