"""What the pipeline `archive` is made of: which messages are finished, and the archive's folder.

Room: pipelines.
See: finished.py, folder.py.
"""
