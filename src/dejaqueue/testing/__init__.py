"""What users may test with: virtual clock, reference model, simulation, conformance suites.

Room: testing. Shipped, but imported by nothing else of the project.
"""
