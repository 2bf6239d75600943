"""The routes, a file for each subject.

Room: http. Each file has a `router` that `app.py` includes.
"""
