"""What the pipeline `audit` is made of: computations on tables of history, and the report.

Room: pipelines.
See: faults.py for what is looked for, figures.py for what is counted, report.py for the page.
"""
