// A simulator in JavaScript that a policy server acts for; it needs Node.js 18 and no packages.
//
//     node examples/external_simulators/simulator.js http://127.0.0.1:8650 TOKEN [EPISODES]
//
// A walker sees its place and a goal, both from -1 to 1, and steps left (0) or right (1) by 0.1.

const crypto = require("node:crypto");

const [url, token, episodes = "100"] = process.argv.slice(2);
const PATIENCE_MS = 120_000;

class EpisodeLost extends Error {}

// Sends a timestep and returns the action. A request that may have been lost is sent again: it is recorded once.
async function step(message) {
  const begun = Date.now();
  for (;;) {
    let response, answer;
    try {
      response = await fetch(`${url}/v1/step`, {
        method: "POST",
        headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
        body: JSON.stringify(message),
        signal: AbortSignal.timeout(30_000),
      });
      answer = await response.json();
    } catch (error) {
      if (Date.now() - begun > PATIENCE_MS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
      continue;
    }
    if (response.ok) return answer.action;
    if (["unknown_episode", "ended"].includes(answer.code)) throw new EpisodeLost(answer.error);
    if (!["wait", "closed", "too_many"].includes(answer.code) || Date.now() - begun > PATIENCE_MS) {
      throw new Error(answer.error);
    }
    if (answer.code !== "wait") await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

async function play() {
  const episode = crypto.randomUUID();
  let place = Math.round(20 * Math.random() - 10) / 10;
  const goal = Math.round(20 * Math.random() - 10) / 10;
  let total = 0;
  let action = await step({ episode, sequence: 0, observation: [place, goal] });
  for (let sequence = 1; ; sequence++) {
    place = Math.max(-1, Math.min(1, place + (action === 1 ? 0.1 : -0.1)));
    const terminated = Math.abs(place - goal) < 0.05;
    const truncated = !terminated && sequence === 40;
    const reward = terminated ? 1 : -0.02;
    total += reward;
    action = await step({ episode, sequence, observation: [place, goal], reward, terminated, truncated });
    if (terminated || truncated) return total;
  }
}


async function main() {
  const returns = [];
  while (returns.length < Number(episodes)) {
    try {
      returns.push(await play());
    } catch (error) {
      if (!(error instanceof EpisodeLost)) throw error;
    }
  }
  const last = returns.slice(-100);
  const mean = last.reduce((sum, one) => sum + one, 0) / last.length;
  console.log(`${returns.length} episodes, mean return of the last ${last.length}: ${mean.toFixed(2)}`);
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
