/** The picture with its boxes, large; before there is one, what can be done. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { sizeOf, type Source } from "../app/sources";
import type { Viewer } from "../app/viewer";
import { drawBoxes } from "./draw";

function Welcome({ labels }: { labels: readonly string[] }): JSX.Element {
  const known = labels.length > 12 ? [...labels.slice(0, 5), "…", ...labels.slice(-5)] : labels;
  return (
    <div class="welcome">
      <h2>What is there to see?</h2>
      <p>Start the camera, or choose, drop or paste a picture or a video. It is searched on this device; nothing leaves it.</p>
      {labels.length > 0 && (
        <p class="known">
          Knows {labels.length} {labels.length === 1 ? "thing" : "things"}: {known.join(", ")}.
        </p>
      )}
    </div>
  );
}

/** The element of the source, below a canvas of the same size. */
function Screen({ viewer, source }: { viewer: Viewer; source: Source }): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const mirrored = source.kind !== "image" && source.mirrored;
  useLayoutEffect(() => {
    const holder = frame.current;
    if (holder === null) return;
    source.element.classList.toggle("mirrored", mirrored);
    source.element.classList.toggle("picture", source.kind === "image");
    holder.prepend(source.element);
    const fit = (): void => {
      const { width, height } = sizeOf(source);
      if (width > 0) holder.style.setProperty("--ratio", String(width / height));
    };
    fit();
    source.element.addEventListener("resize", fit); // a phone was turned
    return () => source.element.removeEventListener("resize", fit);
  }, [source, mirrored]);
  useEffect(() => {
    let request = 0;
    let drawn: unknown;
    let shape = "";
    const context = canvas.current?.getContext("2d");
    const draw = (time: number): void => {
      request = requestAnimationFrame(draw);
      const target = canvas.current;
      if (target === null || !context) return;
      const ratio = devicePixelRatio;
      const [width, height] = [Math.round(target.clientWidth * ratio), Math.round(target.clientHeight * ratio)];
      const still = source.kind === "image" || source.element.paused;
      const now = `${width} ${height}`;
      const boxes = viewer.tracks.step(time);
      // A still picture is drawn again when something about it is new.
      if (still && drawn === viewer.state.found && shape === now && source.kind === "image") return;
      if (shape !== now) Object.assign(target, { width, height });
      [drawn, shape] = [viewer.state.found, now];
      context.clearRect(0, 0, width, height);
      drawBoxes(context, boxes, { width, height, ratio, scale: width / (sizeOf(source).width || 1), mirrored });
    };
    request = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(request);
  }, [viewer, source, mirrored]);
  return (
    <div class="screen" ref={frame} data-testid="screen" data-kind={source.kind}>
      <canvas ref={canvas} aria-hidden="true" />
    </div>
  );
}

export function Stage({ viewer }: { viewer: Viewer }): JSX.Element {
  const { source } = viewer.state;
  return (
    <section class="stage" aria-label="Picture">
      {source === null ? <Welcome labels={viewer.facts.labels} /> : <Screen viewer={viewer} source={source} />}
    </section>
  );
}
