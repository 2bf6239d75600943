"""A shop by Django, whose orders are packed by a worker."""
