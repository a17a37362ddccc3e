// Starts `everfold lsp` and connects it to VS Code. All answers come from that server.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function settings() {
  const { dialect, compare, jobs, docs } = vscode.workspace.getConfiguration("everfold");
  return { dialect, compare, jobs, docs };
}

async function start() {
  const [command, ...args] = vscode.workspace.getConfiguration("everfold").get("command");
  client = new LanguageClient(
    "everfold",
    "everfold",
    { command, args },
    {
      documentSelector: [{ language: "sql" }],
      initializationOptions: settings(),
      outputChannelName: "everfold",
    },
  );
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(
      `everfold: \`${command}\` does not start: ${error?.message ?? error}. ` +
        "Install it with `pip install 'everfold[lsp]'`, or name it in the setting everfold.command.",
    );
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running !== undefined && running.isRunning()) {
    await running.stop();
  }
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("everfold.restart", async () => {
      await stop();
      await start();
    }),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("everfold.command")) {
        await stop();
        await start();
      } else if (event.affectsConfiguration("everfold") && client !== undefined) {
        await client.sendNotification("workspace/didChangeConfiguration", { settings: { everfold: settings() } });
      }
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
