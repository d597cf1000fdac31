"""Meta-training and evaluation on images."""
