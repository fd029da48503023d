"""Training in several processes: ranks, sharded tensors, torchrun."""
