// Acts with a policy that `callboard export RUN DIR --format onnx` has written, in a browser or in Node.
//
//   npm install onnxruntime-web
//   node act.mjs DIR TIMESTEPS.json
//
// prints the outputs for a list of timesteps, each of which has the policy's inputs by name, with a batch axis:
// [{"observation": [[0.1, 0, 0, 0]], "first": [true]}, ...].  In a browser, `loadPolicy` takes what `fetch` returns.
import fs from "node:fs";
import * as ort from "onnxruntime-web";

const ARRAYS = { float32: Float32Array, float64: Float64Array, int32: Int32Array, uint8: Uint8Array, bool: Uint8Array };

function tensor({ dtype, shape }, values, batch) {
  const dims = [batch, ...shape.slice(1)];
  const size = dims.reduce((product, length) => product * length, 1);
  const flat = [values].flat(Infinity);
  if (dtype === "int64") return new ort.Tensor(dtype, BigInt64Array.from({ length: size }, (_, i) => BigInt(flat[i])), dims);
  return new ort.Tensor(dtype, ARRAYS[dtype].from({ length: size }, (_, i) => Number(flat[i])), dims);
}

/** Returns a function that maps the inputs of a timestep to its outputs and keeps the policy's state. */
export async function loadPolicy(model, about, batch = 1) {
  const session = await ort.InferenceSession.create(model);
  // The state begins as one number, or as the values of one environment.
  const start = (leaf) => {
    const one = [leaf.start].flat(Infinity);
    const size = batch * leaf.shape.slice(1).reduce((product, length) => product * length, 1);
    return tensor(leaf, Array.from({ length: size }, (_, i) => one[i % one.length]), batch);
  };
  let state = Object.fromEntries(about.state.map((leaf) => [leaf.name, start(leaf)]));
  return async (inputs) => {
    const given = about.inputs.map((leaf) => [leaf.name, tensor(leaf, inputs[leaf.name], batch)]);
    const outputs = await session.run({ ...Object.fromEntries(given), ...state });
    state = Object.fromEntries(about.state.map((leaf) => [leaf.name, outputs[leaf.output]]));
    return Object.fromEntries(about.outputs.map((leaf) => [leaf.name, Array.from(outputs[leaf.name].data, Number)]));
  };
}

if (process.argv.length === 4) {
  const [directory, timesteps] = process.argv.slice(2);
  const about = JSON.parse(fs.readFileSync(`${directory}/policy.json`));
  const rows = JSON.parse(fs.readFileSync(timesteps));
  const act = await loadPolicy(fs.readFileSync(`${directory}/policy.onnx`), about, rows[0].first.length);
  const results = [];
  for (const row of rows) results.push(await act(row));
  console.log(JSON.stringify(results));
}
