"""The language server of `everfold lsp`: what editors show about a script."""
