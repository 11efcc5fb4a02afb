import { render } from "preact";
import { newId, nextFrame, openShell } from "tinyweb-shell";
import "tinyweb-shell/styles.css";
import { ChatApp } from "./app/chat-app";
import { displayName, parseFacts } from "./app/facts";
import type { Chat } from "./model-api";
import { parseSettings, type Settings } from "./store/settings";
import { App } from "./ui/App";
import "./styles/layout.css";
import "./styles/messages.css";

const shell = openShell<Chat, Settings>({
  app: "tinychat",
  title: (facts) => displayName(parseFacts(facts)),
  words: { kept: "your conversation is kept", next: "your next message" },
  parseSettings,
  smaller: (facts) => ({ context: Math.max(128, Math.floor((parseFacts(facts).context ?? 2048) / 4)) }),
});
const app = new ChatApp({
  shell,
  now: () => Date.now(),
  ticks: () => performance.now(),
  newId,
  newSeed: () => (crypto.getRandomValues(new Uint32Array(1))[0] ?? 1) >>> 1,
  nextFrame,
});

addEventListener("storage", () => app.changedElsewhere());
addEventListener("pageshow", () => app.changedElsewhere()); // while the browser keeps a page for going back, it is told nothing
addEventListener("pagehide", () => {
  app.save();
  app.forgetRemoved();
});

const root = document.getElementById("app");
if (root !== null) {
  render(<App app={app} />, root);
  void shell.model.load();
}
