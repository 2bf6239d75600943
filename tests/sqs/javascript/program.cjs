// A program with the AWS SDK for JavaScript at a broker: its environment alone says that SQS is elsewhere.
// It prints a line for each part that went as it goes with SQS. The SDK itself compares the MD5s of bodies.
const assert = require("node:assert/strict");
const { createHash } = require("node:crypto");
const {
  SQS,
  BatchEntryIdsNotDistinct,
  QueueDoesNotExist,
  ReceiptHandleIsInvalid,
} = require("@aws-sdk/client-sqs");

const sqs = new SQS({ maxAttempts: 1 });
const ALL = { AttributeNames: ["All"], MessageAttributeNames: ["All"] };

async function queues() {
  const letters = (await sqs.createQueue({ QueueName: "js-letters" })).QueueUrl;
  const { QueueArn } = (await sqs.getQueueAttributes({ QueueUrl: letters, AttributeNames: ["QueueArn"] })).Attributes;
  const Attributes = {
    VisibilityTimeout: "60",
    RedrivePolicy: JSON.stringify({ deadLetterTargetArn: QueueArn, maxReceiveCount: 2 }),
  };
  const work = (await sqs.createQueue({ QueueName: "js-work", Attributes, tags: { team: "a" } })).QueueUrl;
  assert.equal((await sqs.createQueue({ QueueName: "js-work", Attributes })).QueueUrl, work);
  assert.equal((await sqs.getQueueUrl({ QueueName: "js-work" })).QueueUrl, work);
  assert.deepEqual((await sqs.listQueues({ QueueNamePrefix: "js-" })).QueueUrls, [letters, work]);
  await sqs.tagQueue({ QueueUrl: work, Tags: { cost: "b" } });
  await sqs.untagQueue({ QueueUrl: work, TagKeys: ["team"] });
  assert.deepEqual((await sqs.listQueueTags({ QueueUrl: work })).Tags, { cost: "b" });
  await sqs.setQueueAttributes({ QueueUrl: work, Attributes: { VisibilityTimeout: "90" } });
  const shown = (await sqs.getQueueAttributes({ QueueUrl: work, AttributeNames: ["All"] })).Attributes;
  assert.equal(shown.VisibilityTimeout, "90");
  assert.equal(JSON.parse(shown.RedrivePolicy).maxReceiveCount, 2);
  await assert.rejects(sqs.getQueueUrl({ QueueName: "js-away" }), QueueDoesNotExist);
  return { letters, lettersArn: QueueArn, work };
}

// --- messages ------------------------------------------------------------------------------------

async function received(QueueUrl, count, more = {}) {
  const found = [];
  while (found.length < count) {
    const answer = await sqs.receiveMessage({ QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, ...ALL, ...more });
    assert.ok(answer.Messages, `${QueueUrl} has ${found.length} of ${count} messages`);
    found.push(...answer.Messages);
  }
  return found.sort((a, b) => (a.Body < b.Body ? -1 : 1));
}

function digestOf(attributes) {
  const digest = createHash("md5");
  const put = (part) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(part.length);
    digest.update(length).update(part);
  };
  for (const name of Object.keys(attributes).sort()) {
    const { DataType, StringValue, BinaryValue } = attributes[name];
    put(Buffer.from(name));
    put(Buffer.from(DataType));
    digest.update(Buffer.from([BinaryValue ? 2 : 1]));
    put(Buffer.from(BinaryValue ?? StringValue));
  }
  return digest.digest("hex");
}

async function batches(QueueUrl) {
  const MessageAttributes = {
    text: { DataType: "String", StringValue: "Grüße" },
    "number.of.it": { DataType: "Number.int", StringValue: "-5" },
    bytes: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255, 7]) },
  };
  const sent = await sqs.sendMessageBatch({
    QueueUrl,
    Entries: [
      { Id: "a", MessageBody: "first ✓", MessageAttributes },
      { Id: "b", MessageBody: "second", DelaySeconds: 1_000_000 },
      { Id: "c", MessageBody: "third" },
    ],
  });
  assert.deepEqual(sent.Successful.map((one) => one.Id), ["a", "c"]);
  assert.equal(sent.Successful[0].MD5OfMessageAttributes, digestOf(MessageAttributes));
  assert.deepEqual(sent.Failed.map((one) => [one.Id, one.SenderFault, one.Code]), [["b", true, "InvalidParameterValue"]]);
  const twice = [{ Id: "a", MessageBody: "x" }, { Id: "a", MessageBody: "x" }];
  await assert.rejects(sqs.sendMessageBatch({ QueueUrl, Entries: twice }), BatchEntryIdsNotDistinct);
  const [first, third] = await received(QueueUrl, 2);
  assert.deepEqual([first.Body, third.Body], ["first ✓", "third"]);
  assert.equal(first.MessageId, sent.Successful[0].MessageId);
  assert.deepEqual(
    Object.fromEntries(
      Object.entries(first.MessageAttributes).map(([name, { DataType, StringValue, BinaryValue }]) => [
        name,
        BinaryValue ? { DataType, BinaryValue: new Uint8Array(BinaryValue) } : { DataType, StringValue },
      ]),
    ),
    MessageAttributes,
  );
  assert.equal(first.MD5OfMessageAttributes, digestOf(MessageAttributes));
  const deleted = await sqs.deleteMessageBatch({
    QueueUrl,
    Entries: [
      { Id: "a", ReceiptHandle: first.ReceiptHandle },
      { Id: "b", ReceiptHandle: "nothing" },
      { Id: "c", ReceiptHandle: third.ReceiptHandle },
    ],
  });
  assert.deepEqual(deleted.Successful.map((one) => one.Id), ["a", "c"]);
  assert.deepEqual(deleted.Failed.map((one) => [one.Id, one.Code]), [["b", "ReceiptHandleIsInvalid"]]);
  await assert.rejects(sqs.deleteMessage({ QueueUrl, ReceiptHandle: "nothing" }), ReceiptHandleIsInvalid);
}

async function visibility(QueueUrl) {
  await sqs.sendMessage({ QueueUrl, MessageBody: "again" });
  const [first] = await received(QueueUrl, 1);
  assert.equal(first.Attributes.ApproximateReceiveCount, "1");
  const changed = await sqs.changeMessageVisibilityBatch({
    QueueUrl,
    Entries: [
      { Id: "a", ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 0 },
      { Id: "b", ReceiptHandle: "nothing", VisibilityTimeout: 0 },
    ],
  });
  assert.deepEqual([changed.Successful[0].Id, changed.Failed[0].Id], ["a", "b"]);
  const [second] = await received(QueueUrl, 1);
  assert.equal(second.Attributes.ApproximateReceiveCount, "2");
  assert.equal(second.MessageId, first.MessageId);
  await sqs.changeMessageVisibility({ QueueUrl, ReceiptHandle: second.ReceiptHandle, VisibilityTimeout: 600 });
  await sqs.deleteMessage({ QueueUrl, ReceiptHandle: second.ReceiptHandle });
}

async function delay(QueueUrl) {
  const began = Date.now();
  await sqs.sendMessage({ QueueUrl, MessageBody: "later", DelaySeconds: 2 });
  assert.equal((await sqs.receiveMessage({ QueueUrl })).Messages, undefined);
  const [later] = await received(QueueUrl, 1);
  assert.ok(Date.now() - began >= 1_900);
  await sqs.deleteMessage({ QueueUrl, ReceiptHandle: later.ReceiptHandle });
}

async function fifo() {
  const Attributes = { FifoQueue: "true", ContentBasedDeduplication: "true" };
  const { QueueUrl } = await sqs.createQueue({ QueueName: "js-order.fifo", Attributes });
  const send = (MessageBody, MessageGroupId) => sqs.sendMessage({ QueueUrl, MessageBody, MessageGroupId });
  const first = await send("1", "g");
  assert.deepEqual([(await send("1", "g")).MessageId, first.SequenceNumber.length], [first.MessageId, 20]);
  await send("2", "g");
  const [one, two] = await received(QueueUrl, 2);
  assert.deepEqual([one.Body, one.Attributes.MessageGroupId], ["1", "g"]);
  assert.equal(one.Attributes.SequenceNumber, first.SequenceNumber);
  assert.equal((await sqs.receiveMessage({ QueueUrl })).Messages, undefined);
  await sqs.deleteMessage({ QueueUrl, ReceiptHandle: one.ReceiptHandle });
  assert.equal(two.Body, "2");
  await sqs.deleteMessage({ QueueUrl, ReceiptHandle: two.ReceiptHandle });
  await sqs.deleteQueue({ QueueUrl });
}

async function redrive({ letters, lettersArn, work }) {
  const { MessageId } = await sqs.sendMessage({ QueueUrl: work, MessageBody: "fails" });
  for (let time = 0; time < 2; time += 1) {
    const [{ ReceiptHandle }] = await received(work, 1);
    await sqs.changeMessageVisibility({ QueueUrl: work, ReceiptHandle, VisibilityTimeout: 0 });
  }
  const [dead] = await received(letters, 1);
  assert.equal(dead.MessageId, MessageId);
  await sqs.changeMessageVisibility({ QueueUrl: letters, ReceiptHandle: dead.ReceiptHandle, VisibilityTimeout: 0 });
  assert.deepEqual((await sqs.listDeadLetterSourceQueues({ QueueUrl: letters })).queueUrls, [work]);
  await sqs.startMessageMoveTask({ SourceArn: lettersArn });
  const [back] = await received(work, 1);
  assert.deepEqual([back.MessageId, back.Body], [MessageId, "fails"]);
  await sqs.deleteMessage({ QueueUrl: work, ReceiptHandle: back.ReceiptHandle });
  for (;;) {
    const [task] = (await sqs.listMessageMoveTasks({ SourceArn: lettersArn })).Results;
    if (task.Status !== "RUNNING") {
      assert.deepEqual([task.Status, task.ApproximateNumberOfMessagesMoved], ["COMPLETED", 1]);
      break;
    }
  }
}

async function main() {
  const told = async (name, part) => {
    const found = await part;
    console.log(name);
    return found;
  };
  const made = await told("queues", queues());
  await told("batches", batches(made.work));
  await told("visibility", visibility(made.work));
  await told("delay", delay(made.work));
  await told("fifo", fifo());
  await told("redrive", redrive(made));
  await sqs.purgeQueue({ QueueUrl: made.work });
  await sqs.deleteQueue({ QueueUrl: made.work });
  await assert.rejects(sqs.sendMessage({ QueueUrl: made.work, MessageBody: "x" }), QueueDoesNotExist);
  sqs.destroy();
}

main();
