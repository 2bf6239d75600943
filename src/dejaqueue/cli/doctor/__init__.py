"""`dejaq doctor`: what of this machine, its settings and its broker would hurt, and the command.

Room: cli. Looks and changes nothing; each file looks at one thing and gives findings.
See: command.py; docs/guides/doctor.md.
"""
