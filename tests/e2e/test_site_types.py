"""A page of somebody else's, in TypeScript: every exported site has its types beside it, of what its model can do."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.pages import PAGES, ROOT, ExportedPage

USES = {
    "chat": 'for await (const { text } of model.generate([{ role: "user", content: "hi" }])) text.trim();',
    "detect": "for (const { box: [x], label } of await model.detect(new ImageData(4, 4), { iou: 0.5 })) label.at(x);",
    "image": "(await model.generateRgba(info.examples[0], { onStep: ({ step }) => step })).data.at(0);",
    "embed": 'const [vector] = await model.embed(["a"], { kind: "query" });\nvector.at(info.dimensions - 1);',
}
# what a project of TypeScript is begun with, and nothing of this repository's
OPTIONS = {"strict": True, "noEmit": True, "target": "es2022", "module": "esnext", "moduleResolution": "bundler"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.task)
def test_types(exported_page: Callable[[ExportedPage], Path], tmp_path: Path, page: ExportedPage) -> None:
    loader = exported_page(page) / "model/model.js"
    (tmp_path / "page.ts").write_text(
        f"""import {{ info, load, TinywebError, type LoadOptions }} from {json.dumps(str(loader))};
const options: LoadOptions = {{ backend: "wasm" }};
try {{
  const model = await load(options);
  model.info.backend satisfies "webgpu" | "wasm" | "wasm-single";
  {USES[page.task]}
  await model.dispose();
}} catch (error) {{
  if (error instanceof TinywebError && error.code === "no-backend") console.warn(info.name, error.message);
}}
// @ts-expect-error: no such backend
void load({{ backend: "cuda" }});
"""
    )
    options = OPTIONS | {"lib": ["es2023", "dom"], "types": []}
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["page.ts"]}))
    tsc = [ROOT / "node_modules/.bin/tsc", "-p", tmp_path]
    done = subprocess.run(tsc, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
