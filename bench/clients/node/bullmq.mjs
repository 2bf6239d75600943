// BullMQ sends to a queue and takes from it, as lines of JSON on its input say: bench/peers/load.py
// for a client of Node. Arguments: URL of Redis. Prints `ready`; then for each line one line.
//
// A connection that sends is a Queue, a consumer is a Worker of one job at a time. A send counts when
// Redis has answered it. The ack of a job is the script that ends it and fetches the next one.
import { randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { Queue, Worker } = createRequire(`${process.env.BULLMQ_FOLDER}/`)("bullmq");

const PAYLOAD_BYTES = 100; // bench/load.py
const WARM_US = 0; // the time of a message that counts for nothing
const place = new URL(process.argv[2]);
const connection = { host: place.hostname, port: Number(place.port), maxRetriesPerRequest: null };

/** Microseconds since 1970: the clock counts milliseconds, which are measured against a finer one. */
let clockOffsetMs = 0;
function setClock() {
  const begin = Date.now();
  let now = begin;
  while (now === begin) now = Date.now();
  clockOffsetMs = now - performance.now();
}
const nowUs = () => Math.round(1_000 * (clockOffsetMs + performance.now()));

function dataOf(atUs) {
  const payload = randomBytes(PAYLOAD_BYTES);
  payload.writeBigInt64LE(BigInt(atUs));
  return { p: payload.toString("base64") };
}
const timeOf = (data) => Number(Buffer.from(data.p, "base64").readBigInt64LE());

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const seconds = () => performance.now() / 1_000;
const processorSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

let senders = [];
let worker = null;
let taking = null; // what to do with a job; null = nobody takes any
let begins = [];
let warm = null;

async function work(job) {
  const receivedUs = nowUs();
  const atUs = timeOf(job.data);
  if (atUs === WARM_US) return;
  while (taking === null) await new Promise((resolve) => begins.push(resolve));
  taking.received(job.id, receivedUs, atUs);
}

const calls = {
  async make() {},

  async open({ queue, connections }) {
    for (let index = 0; index < connections; index++) {
      const sender = new Queue(queue.name, {
        connection,
        defaultJobOptions: { removeOnComplete: true },
      });
      await sender.waitUntilReady();
      senders.push(sender);
      await sender.add("message", dataOf(WARM_US));
    }
  },

  async listen({ queue, idle_seconds }) {
    worker = new Worker(queue.name, work, { connection, concurrency: 1 });
    worker.idleSeconds = idle_seconds;
    warm = new Promise((resolve) => worker.once("completed", resolve));
    worker.on("completed", (job) => taking?.completed(job.id));
    worker.on("error", (error) => fail(error));
    worker.on("failed", (_job, error) => fail(error));
    await warm;
  },

  async send({ seconds: length }) {
    const start = seconds();
    const processor = processorSeconds();
    const one = async (sender) => {
      let count = 0;
      for (; seconds() - start < length; count++) await sender.add("message", dataOf(1));
      return count;
    };
    const counts = await Promise.all(senders.map(one));
    return {
      rows: counts.reduce((sum, count) => sum + count, 0),
      seconds: seconds() - start,
      processor_seconds: processorSeconds() - processor,
    };
  },

  async pace({ per_second, delays_ms, rows }) {
    setClock();
    const [sender] = senders;
    const start = seconds();
    const processor = processorSeconds();
    for (let number = 0; number < rows; number++) {
      const pauseMs = 1_000 * (start + number / per_second - seconds());
      if (pauseMs > 0) await sleep(pauseMs);
      if (delays_ms.length > 0) {
        const delay = delays_ms[number % delays_ms.length];
        // A job is due by the millisecond that it was made in, which may be the one after this.
        const timestamp = Date.now();
        await sender.add("message", dataOf(1_000 * (timestamp + delay)), { delay, timestamp });
      } else {
        await sender.add("message", dataOf(nowUs()));
      }
    }
    return { rows, seconds: seconds() - start, processor_seconds: processorSeconds() - processor };
  },

  async take({ rows, seconds: length }) {
    setClock();
    const late_us = [];
    const start = seconds();
    const processor = processorSeconds();
    let last = start;
    let count = 0;
    await new Promise((resolve) => {
      const idle = setInterval(() => {
        if (seconds() - last > worker.idleSeconds) end();
      }, (1_000 * worker.idleSeconds) / 4);
      const end = () => {
        clearInterval(idle);
        taking = null;
        resolve();
      };
      const under = new Map();
      taking = {
        received: (id, receivedUs, atUs) => under.set(id, Math.max(receivedUs, beganUs) - atUs),
        completed: (id) => {
          if (!under.has(id)) return;
          late_us.push(under.get(id));
          under.delete(id);
          count++;
          last = seconds();
          if (count === rows || last - start > length) end();
        },
      };
      const beganUs = nowUs(); // one may have come ahead
      for (const begin of begins) begin();
      begins = [];
    });
    return { rows: count, seconds: last - start, processor_seconds: processorSeconds() - processor, late_us };
  },

  async close() {
    for (const sender of senders) await sender.close();
    senders = [];
    if (worker !== null) {
      const ending = worker;
      worker = null;
      // By force: the job that came ahead waits for the next `take`, which there is none of.
      await ending.close(true);
    }
  },
};

function fail(error) {
  console.error(error);
  process.exit(1);
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...values } = JSON.parse(line);
  try {
    console.log(JSON.stringify((await calls[name](values)) ?? {}));
  } catch (error) {
    fail(error);
  }
}
process.exit(0); // what clients leave running is no part of the figures
