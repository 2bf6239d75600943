"""What `dejaq worker` is: a supervisor, and processes that run tasks.

Room: tasks.worker. The supervisor runs no task; a process decides nothing about itself.
Holds: what is at work stands on a board in memory that outlives its process, so that the
supervisor knows what a killed process left, gives it back at once, and says why.
See: supervisor.py, worker_process.py, board.py; docs/guides/tasks.md, Workers.
"""
