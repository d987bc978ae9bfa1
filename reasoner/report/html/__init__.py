"""The HTML report of a run: one file that needs no network, no server and no other file.

Covers runs of all three methods, finished or not. Does not cover the plain folders of the step-by-step commands.
`build.write_html` makes it; the templates, the style and the script are in templates/.
"""
