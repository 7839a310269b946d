"""The page: a results folder as one self-contained HTML file, as pictures and as a summary."""
