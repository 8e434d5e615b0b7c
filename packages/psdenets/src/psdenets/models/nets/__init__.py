"""Networks with plain weights: ResNet, ConvNet, ODENet."""
