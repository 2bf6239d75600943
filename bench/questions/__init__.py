"""One file per question. Each has a `measure(plan) -> Outcome` and says what is measured, and how."""
