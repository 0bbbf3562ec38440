"""The benchmark, `python -m flashattn bench`. The rest of the package does not import it, except for the commands."""
