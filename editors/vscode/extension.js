// Starts `everfold lsp` and connects it to VS Code. All answers come from that server.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;
let changing = Promise.resolve(); // ends when the last start or stop that was asked for has ended

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

// One after the other, as a client that is starting cannot be stopped. A failure does not end the chain.
function restart() {
  changing = changing
    .then(stop)
    .then(start)
    .catch((error) => vscode.window.showErrorMessage(`everfold: ${error?.message ?? error}`));
  return changing;
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("everfold.restart", restart),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("everfold.command")) {
        await restart();
      } else if (event.affectsConfiguration("everfold") && client !== undefined) {
        await client.sendNotification("workspace/didChangeConfiguration", { settings: { everfold: settings() } });
      }
    }),
  );
  await restart();
}

function deactivate() {
  changing = changing.then(stop);
  return changing;
}

module.exports = { activate, deactivate };
