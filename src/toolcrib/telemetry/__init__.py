"""What is told about tools and calls: figures, and the name of what they were counted with."""
