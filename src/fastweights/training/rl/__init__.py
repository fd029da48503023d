"""Reinforcement learning: actors, rollouts, and the actor-critic loss."""
