// Starts `magus lsp` and connects it; all that the extension knows of the language, the server says.
const { workspace } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

function activate() {
  const command = workspace.getConfiguration("magus").get("command");
  const server = { command, args: ["lsp"], transport: TransportKind.stdio };
  const watched = workspace.createFileSystemWatcher("**/*.mgs");
  client = new LanguageClient("magus", "Magus", server, {
    documentSelector: [{ language: "mgs" }],
    synchronize: { fileEvents: watched },
  });
  return client.start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
