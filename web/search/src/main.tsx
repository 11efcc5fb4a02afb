import { render } from "preact";
import { folderOf, newId, openShell, parseShellSettings, type ShellSettings } from "tinyweb-shell";
import "tinyweb-shell/styles.css";
import { Finder, WORDS } from "./app/finder";
import { Library } from "./app/library";
import { pageTitle, type SearchModel } from "./model-api";
import { App } from "./ui/App";
import "./styles/page.css";

const shell = openShell<SearchModel, ShellSettings>({
  app: "tinysearch",
  title: pageTitle,
  words: WORDS,
  parseSettings: parseShellSettings,
});
const folder = folderOf(location.pathname);
const others = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(`tinyweb-search:${folder}`);

const finder = new Finder({
  shell,
  library: Library.open(folder),
  newId,
  now: () => Date.now(),
  ticks: () => performance.now(),
  tell: () => others?.postMessage("changed"),
  persist: () => void navigator.storage?.persist?.().catch(() => undefined),
});
if (others !== null) others.onmessage = () => void finder.refresh();

const root = document.getElementById("app");
if (root !== null) {
  render(<App finder={finder} />, root);
  void finder.open();
  void shell.model.load();
}
