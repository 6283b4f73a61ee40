"""Services of one crib for guests: the interfaces of `core.services`, implemented."""
