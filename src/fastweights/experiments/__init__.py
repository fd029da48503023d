"""What `fastweights train` and `fastweights reproduce` share: what an experiment is, and how its runs go."""
