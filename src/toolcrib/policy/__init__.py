"""What is allowed: rules that name a tool and its arguments, modes for what no rule names, and the asking of people."""
