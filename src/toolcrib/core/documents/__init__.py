"""Documents that keep the text position of every node (`tree`), and the safe readers of YAML and TOML."""
