"""`toolcrib chat`: a conversation in a terminal, one idea a module."""
