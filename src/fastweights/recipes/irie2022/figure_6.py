"""FC100, 5-shot: the test accuracy of the SRWM over training."""

from fastweights.recipes.irie2022._test_curves import figure

EXPERIMENT = figure(6, "fc100-5", 58.5)
