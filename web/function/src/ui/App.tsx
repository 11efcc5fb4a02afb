import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import {
  FileDrop,
  formatBytes,
  Icon,
  Layout,
  Main,
  modelRows,
  ProblemLine,
  useChanges,
  useCopy,
  useEscape,
  type AboutRow,
  type Figure,
} from "tinyweb-shell";
import { dtypeName, shapeText } from "../data/arrays";
import { callCode } from "../app/code";
import type { Runner, Times } from "../app/runner";
import { sizesOf } from "../model-api";
import { InputCard, SizesCard } from "./Inputs";
import { OutputCard } from "./Outputs";

const MEASURED = 20;

const ms = (value: number): string => `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ms`;

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

function TimesCard({ runner }: { runner: Runner }): JSX.Element | null {
  const { times, running } = runner.state;
  const last = times.at(-1);
  if (last === undefined) return null;
  const kernels = runner.current?.kernels ?? 0;
  const phases: [keyof Times, string][] = [
    ["prepareMs", "Inputs made"],
    ["runMs", "On the device"],
    ["transferMs", "There and back"],
  ];
  const whole = (t: Times): number => t.prepareMs + t.runMs + t.transferMs;
  return (
    <section class="card port" aria-labelledby="times-title" data-testid="times">
      <div class="port-head">
        <h3 id="times-title">Times</h3>
        <p class="hint">
          {kernels} kernel{kernels === 1 ? "" : "s"} a run
          {kernels > 0 && `, ${((1000 * median(times.map(({ runMs }) => runMs))) / kernels).toFixed(0)} µs for each`}
        </p>
      </div>
      <table class="times">
        <thead>
          <tr>
            <th scope="col">Phase</th>
            <th scope="col">last</th>
            <th scope="col">{`median of ${times.length}`}</th>
            <th scope="col">least</th>
          </tr>
        </thead>
        <tbody>
          {[...phases.map(([key, label]) => [label, (t: Times) => t[key]] as const), ["In all", whole] as const].map(([label, of]) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              <td>{ms(of(last))}</td>
              <td>{ms(median(times.map(of)))}</td>
              <td>{ms(Math.min(...times.map(of)))}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <div class="row">
        <button type="button" class="button" data-testid="measure" disabled={running} onClick={() => void runner.run(MEASURED)}>
          <Icon name="again" />
          {`Run ${MEASURED} times`}
        </button>
      </div>
    </section>
  );
}

function CodeCard({ runner }: { runner: Runner }): JSX.Element | null {
  const [copied, copy] = useCopy();
  const { current, functions } = runner;
  if (current === undefined) return null;
  const code = callCode(current, functions.length === 1);
  return (
    <section class="card port" aria-labelledby="code-title">
      <div class="port-head">
        <h3 id="code-title">In a page of your own</h3>
        <p class="hint">Copy the folders model and assets, then:</p>
      </div>
      <pre class="mono code" tabIndex={0} data-testid="code">
        <code>{code}</code>
      </pre>
      <div class="row">
        <button type="button" class="button" data-testid="copy-code" onClick={() => copy(code)}>
          <Icon name={copied ? "check" : "copy"} />
          <span aria-live="polite">{copied ? "Copied" : "Copy"}</span>
        </button>
      </div>
    </section>
  );
}

/** On small screens what comes out is below what goes in. */
function show(element: HTMLElement | null): void {
  if (element === null || element.getBoundingClientRect().top < innerHeight / 2) return;
  element.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth" });
}

export function App({ runner }: { runner: Runner }): JSX.Element {
  useChanges(runner);
  const { shell, state, current } = runner;
  useEscape(() => runner.stop());
  const outputs = useRef<HTMLDivElement>(null);
  const last = state.times.at(-1);
  const figures: Figure[] = last === undefined ? [] : [{ key: "run-time", text: ms(last.runMs) }];
  const { engine, facts } = shell.model.state;
  const told = Object.entries(runner.graph.metadata)
    .filter(([, value]) => value.length <= 120)
    .slice(0, 12) as AboutRow[];
  const about: AboutRow[] = [...modelRows(runner.shell.title, sizesOf(facts)), ...told];
  if (engine.phase === "ready") about.push(["Memory", formatBytes(engine.info.memoryBytes)]);
  return (
    <Layout
      shell={shell}
      busy={state.running ? "Running…" : null}
      lines={<ProblemLine problem={state.problem} onClose={() => runner.closeProblem()} />}
      dock={
        <div class="tools">
          <button
            type="button"
            class="button primary"
            data-testid="run"
            disabled={current === undefined || state.running}
            onClick={() => void runner.run().then((went) => went && show(outputs.current))}
          >
            <Icon name="play" />
            Run
          </button>
        </div>
      }
      figures={figures}
      about={about}
      dialogs={
        <FileDrop text="Drop a picture, a sound, numbers, labels or a tokenizer" onFiles={([file]) => file && void runner.drop(file)} />
      }
    >
      <Main wide>
        <div class="bench">
          <div class="side">
            <h2 class="part-title">Inputs</h2>
            <SizesCard runner={runner} />
            {current?.inputs.map((spec, index) => (
              <InputCard key={spec.name} runner={runner} spec={spec} index={index} />
            ))}
            {current?.inputs.length === 0 && <p class="hint">This function takes nothing.</p>}
          </div>
          <div ref={outputs} class="side" aria-busy={state.running} data-testid="outputs">
            <h2 class="part-title">Outputs</h2>
            {state.outputs === null ? (
              <ul class="card awaited">
                {current?.outputs.map(({ name, dtype, shape }) => (
                  <li key={name}>
                    <strong>{name}</strong> <span class="hint">{`${dtypeName(dtype)}, ${shapeText(shape)}`}</span>
                  </li>
                ))}
                <li class="hint">Run it to see what comes out. Nothing leaves this device.</li>
              </ul>
            ) : (
              state.outputs.map((shown, index) => <OutputCard key={shown.spec.name} runner={runner} shown={shown} index={index} />)
            )}
            <TimesCard runner={runner} />
            <CodeCard runner={runner} />
          </div>
        </div>
      </Main>
    </Layout>
  );
}
