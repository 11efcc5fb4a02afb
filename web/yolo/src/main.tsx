import { render } from "preact";
import { openShell } from "tinyweb-shell";
import "tinyweb-shell/styles.css";
import { parseSettings, type Settings } from "./app/settings";
import { Viewer } from "./app/viewer";
import { pageTitle, type DetectorModel } from "./model-api";
import { App } from "./ui/App";
import "./styles/page.css";

const shell = openShell<DetectorModel, Settings>({
  app: "tinydetect",
  title: pageTitle,
  words: { kept: "your picture is kept", next: "the next look" },
  parseSettings,
});
const viewer = new Viewer(shell);

const root = document.getElementById("app");
if (root !== null) {
  render(<App viewer={viewer} />, root);
  void shell.model.load();
}
