"""One file per question: what is measured, and how; `measure(plan, report)` answers it."""
