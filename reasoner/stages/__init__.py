"""The work of each stage: folders and configuration in, files in a folder out. Knows nothing of Prefect.

`tasks` wraps these as cached stages; the command line calls them alone.
"""
