"""Where commands run: bubblewrap where this machine has it, nothing where the operator accepts that, else nowhere."""
