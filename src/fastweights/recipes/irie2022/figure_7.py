"""Mini-ImageNet, 5-shot: the test accuracy of the SRWM over training."""

from fastweights.recipes.irie2022._test_curves import figure

EXPERIMENT = figure(7, "mini-imagenet-5", 64.8)
