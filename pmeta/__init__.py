"""p-Meta: few-shot adaptation on a small device (Qu et al., KDD 2022)."""
