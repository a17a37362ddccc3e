-- For Neovim 0.11 or later: copy this file to ~/.config/nvim/lsp/everfold.lua,
-- and write vim.lsp.enable("everfold") in init.lua.
return {
  cmd = { "everfold", "lsp", "--stdio" },
  filetypes = { "sql" },
  root_markers = { ".git" },
  init_options = {
    dialect = "flink",
    compare = "auto",
    jobs = vim.empty_dict(),
  },
  on_attach = function(_, buffer)
    vim.lsp.inlay_hint.enable(true, { bufnr = buffer })
    vim.lsp.codelens.refresh({ bufnr = buffer })
    vim.api.nvim_create_autocmd({ "BufEnter", "InsertLeave", "TextChanged", "BufWritePost" }, {
      buffer = buffer,
      callback = function()
        vim.lsp.codelens.refresh({ bufnr = buffer })
      end,
    })
  end,
}
