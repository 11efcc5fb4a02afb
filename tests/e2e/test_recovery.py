"""What computes breaks down in the middle of an answer: it is made anew, the answer ends, and the next one comes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Served
from tests.e2e.engines import ENGINES, Engine, Tab, ask, by_test_id

Serve = Callable[..., Served]

# Before the worker's own script. What assets/fault.txt says when a module is instantiated ("model 20", "thread 20")
# makes the module stop, as where a kernel divides by zero, at that call in the model's worker or in its first thread.
# Calls without that thread are made slow, as the loader leaves threads asleep where one is as fast.
FAULTY = """
const channel = new BroadcastChannel("fault");
const unreachable = new WebAssembly.Instance(new WebAssembly.Module(Uint8Array.of(
  0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 5, 1, 3, 0, 0, 11,
))).exports.f;
const { instantiate } = WebAssembly;
const own = self.name === "tinyweb-thread" ? "thread" : "model";
if (own === "model") channel.onmessage = ({ data }) => { if (data === "end") self.close(); };
WebAssembly.instantiate = async (module, imports) => {
  const { exports } = await instantiate(module, imports);
  const file = await fetch(new URL("./fault.txt", self.location.href), { cache: "no-store" });
  const [where, at] = (await file.text()).split(" ");
  let calls = 0;
  const faulty = (entry) => (thread, threads) => {
    if (where === own && thread === Number(own === "thread") && ++calls === Number(at)) {
      channel.postMessage("trap");
      unreachable();
    }
    entry(thread, threads);
    if (where === "thread" && threads === 1) for (const end = performance.now() + 50; performance.now() < end; );
  };
  const entries = Object.entries(exports).map(([name, e]) => [name, typeof e === "function" ? faulty(e) : e]);
  return { exports: Object.fromEntries(entries) };
};
"""
LISTEN = """(() => {
  window.fault = new BroadcastChannel("fault");
  window.faults = [];
  window.fault.onmessage = ({ data }) => window.faults.push(data);
  return true;
})()"""
STORY = "Tell me a story about a little fox"


def faulty(own_site: Path, fault: str = "") -> Path:
    worker = own_site / "assets/tinyweb-chat-worker.js"
    worker.write_text(f"{{ {FAULTY} }}" + worker.read_text())
    (own_site / "assets/fault.txt").write_text(fault)
    return own_site


def opened(engine: Engine, address: str) -> Tab:
    tab = engine.open()
    tab.goto(address)
    tab.becomes("ready")
    return tab


def begin(tab: Tab, text: str) -> None:
    """Sends a message; returns when the answer has begun."""
    tab.fill("prompt", text)
    tab.click("send")
    tab.until(f"""document.querySelector('{by_test_id("message-assistant")}')?.textContent""")


def answered(tab: Tab) -> None:
    """The story ended well, and so does what is asked then."""
    tab.becomes("ready")
    assert tab.texts("error") == []
    assert len(tab.texts("message-assistant")[0]) > 40
    assert "12" in ask(tab, "What is 7 plus 5?")
    assert tab.texts("message-user") == [STORY, "What is 7 plus 5?"]


def check_trap(engine: Engine, own_site: Path, served: Serve, where: str, backend: str) -> None:
    tab = opened(engine, f"{served(faulty(own_site, f'{where} 30')).address}/?backend={backend}")
    (own_site / "assets/fault.txt").write_text("")
    tab.evaluate(LISTEN)
    begin(tab, STORY)
    answered(tab)
    assert tab.evaluate("window.faults") == ["trap"]


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_trap(engine: Engine, own_site: Path, served: Serve) -> None:
    """In the model's worker: the answer goes on where it was."""
    check_trap(engine, own_site, served, "model", "wasm-single")


@pytest.mark.parametrize("engine", ENGINES[:2], indirect=True)  # WebKit has no threads here
def test_a_trap_in_a_thread(engine: Engine, own_site: Path, served: Serve) -> None:
    """The other threads wait for it without listening: a new worker answers anew."""
    check_trap(engine, own_site, served, "thread", "wasm")


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_module_that_stops_each_time(engine: Engine, own_site: Path, served: Serve) -> None:
    """It is not tried for ever: the reader is told, and may ask again when the cause is gone."""
    tab = opened(engine, f"{served(faulty(own_site, 'model 5')).address}/?backend=wasm-single")
    tab.fill("prompt", STORY)
    tab.click("send")
    tab.until(f"""document.querySelector('{by_test_id("error")}')""")
    assert "stopped" in tab.texts("error")[0]
    (own_site / "assets/fault.txt").write_text("")
    tab.reload()
    tab.becomes("ready")
    assert "12" in ask(tab, "What is 7 plus 5?")


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_worker_that_ends_without_a_word(engine: Engine, own_site: Path, served: Serve) -> None:
    """As where the system takes its memory: a new one answers anew."""
    tab = opened(engine, f"{served(faulty(own_site)).address}/?backend=wasm-single")
    tab.evaluate(LISTEN)
    begin(tab, STORY)
    tab.evaluate("window.fault.postMessage('end')")
    answered(tab)
