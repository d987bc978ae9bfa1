"""Reports of a run: Markdown for a page, a table for a terminal. Both are made from the data in `data`."""
