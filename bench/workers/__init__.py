"""The same tasks for each task queue that is compared: a no-op, and one that takes 10 ms.

Room: bench. Each module is a program of that queue's users: an application, `send`, and a worker.
Holds: a task notes its number and the time in one write; nothing else is measured in a worker.
See: bench/systems/workers.py, which starts them; bench/questions/workers.py.
"""
