"""What a layer is in any nn.Module (Fig. 2)."""
