"""Tables, curves and verdicts from run folders: Markdown, LaTeX, JSON and one page."""
