"""Pre-training before meta-training: an ordinary classifier, validated by nearest centroids."""
