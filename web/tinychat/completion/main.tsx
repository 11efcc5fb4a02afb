import { render } from "preact";
import { nextFrame, openShell } from "tinyweb-shell";
import "tinyweb-shell/styles.css";
import { CompletionApp } from "../src/app/completion-app";
import { parseFacts } from "../src/app/facts";
import type { Chat } from "../src/model-api";
import { parseSettings, type Settings } from "../src/store/settings";
import { Completion } from "../src/ui/Completion";
import "../src/styles/completion.css";

const shell = openShell<Chat, Settings>({
  app: "tinytext",
  title: (facts) => parseFacts(facts).name ?? "TinyText",
  words: { kept: "your text is kept", next: "the next continuation" },
  parseSettings,
  smaller: (facts) => ({ context: Math.max(128, Math.floor((parseFacts(facts).context ?? 2048) / 4)) }),
});
const app = new CompletionApp({
  shell,
  ticks: () => performance.now(),
  newSeed: () => (crypto.getRandomValues(new Uint32Array(1))[0] ?? 1) >>> 1,
  nextFrame,
});

addEventListener("storage", () => app.changedElsewhere());
addEventListener("pageshow", () => app.changedElsewhere()); // while the browser keeps a page for going back, it is told nothing
addEventListener("pagehide", () => app.save());

const root = document.getElementById("app");
if (root !== null) {
  render(<Completion app={app} />, root);
  void shell.model.load();
}
