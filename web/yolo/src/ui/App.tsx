import type { JSX } from "preact";
import {
  FileDrop,
  FilePicker,
  Icon,
  IconButton,
  Layout,
  Main,
  ProblemLine,
  useChanges,
  useEscape,
  type AboutRow,
  type Figure,
} from "tinyweb-shell";
import type { DetectorInfo } from "../model-api";
import type { Viewer } from "../app/viewer";
import { Panel } from "./Panel";
import { download, snapshot } from "./snapshot";
import { Stage } from "./Stage";

const looksAt = (file: File): boolean => /^(image|video)\//u.test(file.type) || file.type === "";

function Dock({ viewer }: { viewer: Viewer }): JSX.Element {
  const { source, opening, paused } = viewer.state;
  const camera = source?.kind === "camera";
  const save = async (): Promise<void> => {
    const picture = await snapshot(viewer);
    const time = new Date().toISOString().slice(0, 19).replace("T", " ").replaceAll(":", ".");
    if (picture !== null) download(picture, `${viewer.shell.title} ${time}.png`);
  };
  return (
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
      <FilePicker
        testId="choose"
        icon="image"
        accept="image/*,video/*"
        onFiles={([file]) => file !== undefined && void viewer.openFile(file)}
      >
        Picture<span class="wide-only"> or video</span>
      </FilePicker>
      <span class="tools-end">
        {source !== null && source.kind !== "image" && (
          <IconButton
            icon={paused ? "play" : "pause"}
            label={paused ? "Go on" : "Pause"}
            testId="pause"
            onClick={() => viewer.togglePause()}
          />
        )}
        {source !== null && source.kind === "camera" && source.cameras > 1 && (
          <IconButton icon="flip" label="Other camera" testId="flip" onClick={() => void viewer.flipCamera()} />
        )}
        {source !== null && <IconButton icon="download" label="Save with boxes" testId="snapshot" onClick={() => void save()} />}
        {source !== null && source.kind !== "camera" && (
          <IconButton icon="close" label="Close" testId="close" onClick={() => viewer.stop()} />
        )}
      </span>
    </div>
  );
}

export function App({ viewer }: { viewer: Viewer }): JSX.Element {
  useChanges(viewer);
  useChanges(viewer.shell);
  const { shell, state } = viewer;
  const { engine } = shell.model.state;
  useEscape(() => viewer.stop());

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
      lines={<ProblemLine problem={state.problem} onClose={() => viewer.closeProblem()} />}
      dock={<Dock viewer={viewer} />}
      figures={figures}
      about={about}
      dialogs={
        <FileDrop
          icon="image"
          text="Drop a picture or a video"
          pastes={looksAt}
          onFiles={(files) => void viewer.openFile((files.find(looksAt) ?? files[0]) as File)}
        />
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
