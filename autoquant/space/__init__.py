"""Search spaces: from a TOML file to the schemes that each region may take."""
