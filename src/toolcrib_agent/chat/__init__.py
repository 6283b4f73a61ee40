"""`toolcrib chat`: a conversation in a terminal."""
