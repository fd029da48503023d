"""Ba, Hinton, Mnih, Leibo and Ionescu 2016: Using Fast Weights to Attend to the Recent Past."""
