"""Functions of tensors: losses, masks, pseudo-labels, components, distances, perturbations, optimizers."""
