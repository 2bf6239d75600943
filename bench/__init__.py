"""The benchmarks of DejaQ: one file per question, its peers measured in the same run.

Room: beside the package, not shipped. Uses DejaQ as its users do: `dejaq serve` and the client.
Holds: systems are measured in turn, round by round, on the same machine, the same file system and
the same messages, and a message counts when the system has said that it is durable.
See: docs/benchmarks.md for what was found; `make bench` runs it.
"""
