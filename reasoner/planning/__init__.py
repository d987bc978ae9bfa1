"""What a run will cost before it is started: a roofline a stage, corrected by what this machine measured.

Covers: tokens, seconds, memory and disk of every stage, whether they fit and what would. Not covered: which stages are
cached (tasks.planning walks the flow for that), several devices, networks.
"""
