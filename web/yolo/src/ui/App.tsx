import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon, IconButton, Layout, Main, useChanges, useEscape, type AboutRow, type Figure } from "tinyweb-shell";
import type { DetectorInfo } from "../model-api";
import type { Viewer } from "../app/viewer";
import { Panel } from "./Panel";
import { download, snapshot } from "./snapshot";
import { Stage } from "./Stage";

const looksAt = (file: File): boolean => /^(image|video)\//u.test(file.type) || file.type === "";

/** Files dragged over the page or pasted into it. @returns whether some are over it now */
function useDropped(take: (file: File) => void): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    const stop = new AbortController();
    const on = <Name extends "dragover" | "dragleave" | "drop" | "paste">(name: Name, handle: (event: DocumentEventMap[Name]) => void): void =>
      document.addEventListener(name, handle, { signal: stop.signal });
    const offered = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") === true;
    on("dragover", (event) => {
      if (!offered(event)) return;
      event.preventDefault();
      setOver(true);
    });
    on("dragleave", (event) => {
      if (event.relatedTarget === null) setOver(false);
    });
    const receive = (event: Event, files: FileList | undefined): void => {
      setOver(false);
      const file = [...(files ?? [])].find(looksAt);
      if (file === undefined) return;
      event.preventDefault();
      latest.current(file);
    };
    on("drop", (event) => {
      if (offered(event)) event.preventDefault(); // else the browser would leave the page for the file
      receive(event, event.dataTransfer?.files);
    });
    on("paste", (event) => receive(event, event.clipboardData?.files));
    return () => stop.abort();
  }, []);
  return over;
}

function Dock({ viewer }: { viewer: Viewer }): JSX.Element {
  const { source, opening, paused, problem } = viewer.state;
  const file = useRef<HTMLInputElement>(null);
  const camera = source?.kind === "camera";
  const save = async (): Promise<void> => {
    const picture = await snapshot(viewer);
    const time = new Date().toISOString().slice(0, 19).replace("T", " ").replaceAll(":", ".");
    if (picture !== null) download(picture, `${viewer.shell.title} ${time}.png`);
  };
  return (
    <>
      {problem !== null && (
        <div class="failure" role="alert" data-testid="error" data-code={problem.code}>
          <Icon name="alert" />
          <div>
            <p>{problem.text}</p>
          </div>
          <button type="button" class="button quiet" data-testid="close-error" onClick={() => viewer.closeProblem()}>
            Close
          </button>
        </div>
      )}
      <div class="tools">
        <button
          type="button"
          class={camera ? "button" : "button primary"}
          data-testid="camera"
          disabled={opening}
          onClick={() => (camera ? viewer.stop() : void viewer.openCamera())}
        >
          <Icon name={camera ? "stop" : "camera"} />
          {camera ? "Stop" : "Camera"}
        </button>
        <button type="button" class="button" data-testid="choose" onClick={() => file.current?.click()}>
          <Icon name="image" />
          <span>
            Picture<span class="wide-only"> or video</span>
          </span>
        </button>
        <input
          ref={file}
          type="file"
          class="offscreen"
          tabIndex={-1}
          aria-label="Picture or video"
          accept="image/*,video/*"
          data-testid="file"
          onChange={(event) => {
            const [chosen] = event.currentTarget.files ?? [];
            event.currentTarget.value = ""; // the same file can be chosen again
            if (chosen !== undefined) void viewer.openFile(chosen);
          }}
        />
        <span class="tools-end">
          {source !== null && source.kind !== "image" && (
            <IconButton icon={paused ? "play" : "pause"} label={paused ? "Go on" : "Pause"} testId="pause" onClick={() => viewer.togglePause()} />
          )}
          {source !== null && source.kind === "camera" && source.cameras > 1 && (
            <IconButton icon="flip" label="Other camera" testId="flip" onClick={() => void viewer.flipCamera()} />
          )}
          {source !== null && <IconButton icon="download" label="Save with boxes" testId="snapshot" onClick={() => void save()} />}
          {source !== null && source.kind !== "camera" && <IconButton icon="close" label="Close" testId="close" onClick={() => viewer.stop()} />}
        </span>
      </div>
    </>
  );
}

export function App({ viewer }: { viewer: Viewer }): JSX.Element {
  useChanges(viewer);
  useChanges(viewer.shell);
  const { shell, state } = viewer;
  const { engine } = shell.model.state;
  useEscape(() => viewer.stop());
  const dragging = useDropped((file) => void viewer.openFile(file));

  const figures: Figure[] = [];
  if (state.fps > 0) figures.push({ key: "fps", text: `${state.fps.toFixed(state.fps < 10 ? 1 : 0)} fps` });
  if (state.times !== null) {
    figures.push({ key: "run-ms", text: `${Math.round(state.times.runMs)} ms`, unit: "network" });
    figures.push({ key: "draw-ms", text: `${Math.round(state.times.drawMs)} ms`, unit: "picture" });
  }
  const info = engine.phase === "ready" ? (engine.info as DetectorInfo) : null;
  const about: AboutRow[] =
    info === null
      ? []
      : [
          ["Model", info.model],
          ["Looks at", `${info.width} × ${info.height} pixels`],
          ["Kernels per look", String(info.kernels)],
        ];
  return (
    <Layout
      shell={shell}
      busy={viewer.busy}
      dock={<Dock viewer={viewer} />}
      figures={figures}
      about={about}
      dialogs={
        dragging && (
          <div class="drop" aria-hidden="true">
            <p>
              <Icon name="image" />
              Drop a picture or a video
            </p>
          </div>
        )
      }
    >
      <Main wide>
        <div class="viewer">
          <Stage viewer={viewer} />
          <Panel viewer={viewer} />
        </div>
      </Main>
    </Layout>
  );
}
