"""What every command of a disaster needs, loaded once, before it is forked (processes.py)."""
