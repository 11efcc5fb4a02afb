/** jax-js: a matrix product, jitted; its operands stay where the backend has them, the result is read. */
import { inputsOf } from "../inputs.js";

export async function open({ shapes, threads, backend, library }) {
  // its pool has as many workers as the processor has cores; one core: it computes in this thread
  Object.defineProperty(navigator, "hardwareConcurrency", { value: threads });
  const jax = await import(`${library}/@jax-js/jax/dist/index.js`);
  await jax.init(backend);
  jax.defaultDevice(backend);
  const [a, b] = Object.entries(inputsOf(shapes)).map(([name, values]) => jax.numpy.array(values).reshape(shapes[name]));
  const product = jax.jit((x, y) => jax.numpy.matmul(x, y));
  let data;
  const run = async () => {
    data = await product(a.ref, b.ref).data();
  };
  return {
    run,
    async result() {
      await run();
      return { output: data };
    },
    notes: () => ({ threads }),
  };
}
