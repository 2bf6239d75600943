"""DejaQ and its peers, each driven as an expert user would drive it."""
