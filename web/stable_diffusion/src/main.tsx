import { render } from "preact";
import { folderOf, newId, openShell, parseShellSettings, type ShellSettings } from "tinyweb-shell";
import "tinyweb-shell/styles.css";
import { pageTitle } from "./app/facts";
import { Studio } from "./app/studio";
import type { ImageModel } from "./model-api";
import { filesOf } from "./picture/convert";
import { Gallery } from "./store/gallery";
import { App } from "./ui/App";
import "./styles/page.css";

const shell = openShell<ImageModel, ShellSettings>({
  app: "tinypaint",
  title: pageTitle,
  words: { kept: "your pictures are kept", next: "your next picture" },
  parseSettings: parseShellSettings,
  smaller: () => ({ oneAtATime: true }),
});

const folder = folderOf(location.pathname);
const others = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(`tinyweb-image:${folder}`);

const studio = new Studio({
  shell,
  gallery: Gallery.open(folder),
  newId,
  newSeed: () => crypto.getRandomValues(new Uint32Array(1))[0] ?? 1,
  now: () => Date.now(),
  filesOf,
  toUrl: (blob) => URL.createObjectURL(blob),
  freeUrl: (url) => URL.revokeObjectURL(url),
  tell: () => others?.postMessage("changed"),
  persist: () => void navigator.storage?.persist?.().catch(() => undefined),
});
if (others !== null) others.onmessage = () => void studio.refreshGallery();

const root = document.getElementById("app");
if (root !== null) {
  render(<App studio={studio} />, root);
  void shell.model.load();
}
