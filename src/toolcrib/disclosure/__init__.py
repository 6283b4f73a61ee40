"""What the model is shown, one file a strategy. Hiding a tool is never security: policy says whether it may run."""
