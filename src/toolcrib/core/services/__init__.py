"""Services of a crib for guests, as interfaces: the composition root implements them."""
