"""Arora et al. 2024: Zoology, Measuring and Improving Recall in Efficient Language Models."""
