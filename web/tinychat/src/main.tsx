import { render } from "preact";
import { ChatApp } from "./app/chat-app";
import { importModel } from "./app/model";
import { isBackendChoice } from "./model-api";
import { openStore } from "./store/storage";
import { App } from "./ui/App";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/messages.css";
import "./styles/dock.css";
import "./styles/dialogs.css";

const ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz";

function newId(): string {
  // crypto.randomUUID needs a secure context; a page on the local network has none.
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => ALPHABET[byte % ALPHABET.length]).join("");
}

const wanted = new URLSearchParams(location.search).get("backend");

const app = new ChatApp({
  storage: openStore(location.pathname),
  importModel,
  addressBackend: isBackendChoice(wanted) ? wanted : null,
  forgetAddressBackend: () => {
    const url = new URL(location.href);
    url.searchParams.delete("backend");
    history.replaceState(history.state, "", url);
  },
  now: () => Date.now(),
  ticks: () => performance.now(),
  newId,
  newSeed: () => (crypto.getRandomValues(new Uint32Array(1))[0] ?? 1) >>> 1,
  online: () => navigator.onLine,
  nextFrame: (callback) => {
    // No frames are drawn for a hidden page, yet its answer should be complete when the reader comes back.
    if (document.hidden) setTimeout(callback, 200);
    else requestAnimationFrame(callback);
  },
});

addEventListener("online", () => app.cameOnline());
addEventListener("storage", () => app.refreshHistory());
addEventListener("pagehide", () => app.save());

const root = document.getElementById("app");
if (root !== null) {
  render(<App app={app} />, root);
  void app.load();
}
