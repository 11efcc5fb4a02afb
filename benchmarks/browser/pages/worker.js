/** A side in a worker. */
import { serve } from "./serve.js";

let call;
addEventListener("message", async ({ data: { name, argument } }) => {
  try {
    if (name === "open") {
      call = serve(await (await import(`./sides/${argument.module}`)).open(argument.options));
      postMessage({});
    } else {
      postMessage({ value: await call(name, argument) });
    }
  } catch (error) {
    postMessage({ error: String(error?.message ?? error) });
  }
});
