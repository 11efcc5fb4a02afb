import { render } from "preact";
import { openShell } from "tinyweb-shell";
import "tinyweb-shell/styles.css";
import { Runner, WORDS } from "./app/runner";
import { pageTitle, type RunModel } from "./model-api";
import { App } from "./ui/App";
import "./styles/page.css";

const shell = openShell<RunModel>({ app: "tinyfunction", title: pageTitle, words: WORDS });
const runner = new Runner(shell);

const root = document.getElementById("app");
if (root !== null) {
  render(<App runner={runner} />, root);
  void shell.model.load();
}
