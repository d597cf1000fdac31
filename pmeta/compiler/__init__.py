"""From a trained model to model.pmeta, in seven stages."""
