"""Schlag, Irie and Schmidhuber 2021: Linear Transformers Are Secretly Fast Weight Programmers."""
