import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.BatchEntryIdsNotDistinctException;
import software.amazon.awssdk.services.sqs.model.BatchResultErrorEntry;
import software.amazon.awssdk.services.sqs.model.ChangeMessageVisibilityBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.DeleteMessageBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.Message;
import software.amazon.awssdk.services.sqs.model.MessageAttributeValue;
import software.amazon.awssdk.services.sqs.model.MessageSystemAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueDoesNotExistException;
import software.amazon.awssdk.services.sqs.model.ReceiptHandleIsInvalidException;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchResultEntry;

/**
 * A program with the AWS SDK for Java at a broker: its environment alone says that SQS is elsewhere.
 *
 * <p>It prints a line for each part that went as it goes with SQS. The SDK itself compares the MD5s of bodies and of
 * attributes, of what it sends and of what it receives.
 */
public final class Program {
    private final SqsClient sqs;
    private String letters;
    private String lettersArn;
    private String work;

    private Program(SqsClient sqs) {
        this.sqs = sqs;
    }

    public static void main(String[] arguments) throws Exception {
        var address = URI.create(System.getenv("AWS_ENDPOINT_URL_SQS"));
        try (var http = UrlConnectionHttpClient.create();
                var sqs = SqsClient.builder().endpointOverride(address).httpClient(http).build()) {
            new Program(sqs).run();
        }
    }

    private void run() throws Exception {
        queues();
        System.out.println("queues");
        batches();
        System.out.println("batches");
        visibility();
        System.out.println("visibility");
        delay();
        System.out.println("delay");
        fifo();
        System.out.println("fifo");
        redrive();
        System.out.println("redrive");
        sqs.purgeQueue(r -> r.queueUrl(work));
        sqs.deleteQueue(r -> r.queueUrl(work));
        refused(QueueDoesNotExistException.class, () -> sqs.sendMessage(r -> r.queueUrl(work).messageBody("x")));
    }

    private void queues() {
        letters = sqs.createQueue(r -> r.queueName("java-letters")).queueUrl();
        lettersArn = attributes(letters).get(QueueAttributeName.QUEUE_ARN);
        var policy = "{\"deadLetterTargetArn\":\"" + lettersArn + "\",\"maxReceiveCount\":2}";
        var attributes =
                Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "60", QueueAttributeName.REDRIVE_POLICY, policy);
        work = sqs.createQueue(r -> r.queueName("java-work").attributes(attributes).tags(Map.of("team", "a")))
                .queueUrl();
        same(sqs.createQueue(r -> r.queueName("java-work").attributes(attributes)).queueUrl(), work);
        same(sqs.getQueueUrl(r -> r.queueName("java-work")).queueUrl(), work);
        same(sqs.listQueues(r -> r.queueNamePrefix("java-")).queueUrls(), List.of(letters, work));
        sqs.tagQueue(r -> r.queueUrl(work).tags(Map.of("cost", "b")));
        sqs.untagQueue(r -> r.queueUrl(work).tagKeys("team"));
        same(sqs.listQueueTags(r -> r.queueUrl(work)).tags(), Map.of("cost", "b"));
        sqs.setQueueAttributes(
                r -> r.queueUrl(work).attributes(Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "90")));
        same(attributes(work).get(QueueAttributeName.VISIBILITY_TIMEOUT), "90");
        refused(QueueDoesNotExistException.class, () -> sqs.getQueueUrl(r -> r.queueName("java-away")));
    }

    private Map<QueueAttributeName, String> attributes(String url) {
        return sqs.getQueueAttributes(r -> r.queueUrl(url).attributeNames(QueueAttributeName.ALL)).attributes();
    }

    // --- messages ------------------------------------------------------------------------------------------------

    private List<Message> received(String url, int count) {
        var found = new ArrayList<Message>();
        while (found.size() < count) {
            var messages = sqs.receiveMessage(r -> r.queueUrl(url)
                            .maxNumberOfMessages(10)
                            .waitTimeSeconds(20)
                            .messageSystemAttributeNames(MessageSystemAttributeName.ALL)
                            .messageAttributeNames("All"))
                    .messages();
            same(messages.isEmpty(), false);
            found.addAll(messages);
        }
        found.sort(Comparator.comparing(Message::body));
        return found;
    }

    private void batches() throws Exception {
        var attributes = new TreeMap<String, MessageAttributeValue>();
        attributes.put("text", value("String").stringValue("Grüße").build());
        attributes.put("number.of.it", value("Number.int").stringValue("-5").build());
        var bytes = SdkBytes.fromByteArray(new byte[] {0, -1, 7});
        attributes.put("bytes", value("Binary").binaryValue(bytes).build());
        var sent = sqs.sendMessageBatch(r -> r.queueUrl(work)
                .entries(
                        SendMessageBatchRequestEntry.builder()
                                .id("a")
                                .messageBody("first ✓")
                                .messageAttributes(attributes)
                                .build(),
                        entry("b", "second").delaySeconds(1_000_000).build(),
                        entry("c", "third").build()));
        same(sent.successful().stream().map(SendMessageBatchResultEntry::id).toList(), List.of("a", "c"));
        same(sent.successful().get(0).md5OfMessageAttributes(), digestOf(attributes));
        same(sent.failed().stream().map(BatchResultErrorEntry::id).toList(), List.of("b"));
        same(sent.failed().get(0).senderFault(), true);
        same(sent.failed().get(0).code(), "InvalidParameterValue");
        var twice = List.of(entry("a", "x").build(), entry("a", "x").build());
        refused(
                BatchEntryIdsNotDistinctException.class,
                () -> sqs.sendMessageBatch(r -> r.queueUrl(work).entries(twice)));
        var found = received(work, 2);
        same(found.stream().map(Message::body).toList(), List.of("first ✓", "third"));
        same(found.get(0).messageId(), sent.successful().get(0).messageId());
        same(found.get(0).messageAttributes(), attributes);
        same(found.get(0).md5OfMessageAttributes(), digestOf(attributes));
        var deleted = sqs.deleteMessageBatch(r -> r.queueUrl(work)
                .entries(
                        deletion("a", found.get(0).receiptHandle()),
                        deletion("b", "nothing"),
                        deletion("c", found.get(1).receiptHandle())));
        same(deleted.successful().size(), 2);
        same(deleted.failed().get(0).id(), "b");
        same(deleted.failed().get(0).code(), "ReceiptHandleIsInvalid");
        refused(
                ReceiptHandleIsInvalidException.class,
                () -> sqs.deleteMessage(r -> r.queueUrl(work).receiptHandle("nothing")));
    }

    private static MessageAttributeValue.Builder value(String type) {
        return MessageAttributeValue.builder().dataType(type);
    }

    private static SendMessageBatchRequestEntry.Builder entry(String id, String body) {
        return SendMessageBatchRequestEntry.builder().id(id).messageBody(body);
    }

    private static DeleteMessageBatchRequestEntry deletion(String id, String handle) {
        return DeleteMessageBatchRequestEntry.builder().id(id).receiptHandle(handle).build();
    }

    private static String digestOf(TreeMap<String, MessageAttributeValue> attributes) throws Exception {
        var digest = MessageDigest.getInstance("MD5");
        attributes.forEach((name, value) -> {
            var bytes = value.binaryValue();
            put(digest, name.getBytes(StandardCharsets.UTF_8));
            put(digest, value.dataType().getBytes(StandardCharsets.UTF_8));
            digest.update((byte) (bytes == null ? 1 : 2));
            put(digest, bytes == null ? value.stringValue().getBytes(StandardCharsets.UTF_8) : bytes.asByteArray());
        });
        return HexFormat.of().formatHex(digest.digest());
    }

    private static void put(MessageDigest digest, byte[] part) {
        digest.update(ByteBuffer.allocate(4).putInt(part.length).array());
        digest.update(part);
    }

    private void visibility() {
        sqs.sendMessage(r -> r.queueUrl(work).messageBody("again"));
        var first = received(work, 1).get(0);
        same(first.attributes().get(MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT), "1");
        var changed = sqs.changeMessageVisibilityBatch(
                r -> r.queueUrl(work).entries(visible("a", first.receiptHandle()), visible("b", "nothing")));
        same(changed.successful().get(0).id(), "a");
        same(changed.failed().get(0).id(), "b");
        var second = received(work, 1).get(0);
        same(second.attributes().get(MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT), "2");
        same(second.messageId(), first.messageId());
        sqs.changeMessageVisibility(
                r -> r.queueUrl(work).receiptHandle(second.receiptHandle()).visibilityTimeout(600));
        sqs.deleteMessage(r -> r.queueUrl(work).receiptHandle(second.receiptHandle()));
    }

    private static ChangeMessageVisibilityBatchRequestEntry visible(String id, String handle) {
        return ChangeMessageVisibilityBatchRequestEntry.builder()
                .id(id)
                .receiptHandle(handle)
                .visibilityTimeout(0)
                .build();
    }

    private void delay() {
        var began = System.nanoTime();
        sqs.sendMessage(r -> r.queueUrl(work).messageBody("later").delaySeconds(2));
        same(sqs.receiveMessage(r -> r.queueUrl(work)).messages(), List.of());
        var later = received(work, 1).get(0);
        same(System.nanoTime() - began >= 1_900_000_000L, true);
        sqs.deleteMessage(r -> r.queueUrl(work).receiptHandle(later.receiptHandle()));
    }

    private void fifo() {
        var attributes =
                Map.of(QueueAttributeName.FIFO_QUEUE, "true", QueueAttributeName.CONTENT_BASED_DEDUPLICATION, "true");
        var url = sqs.createQueue(r -> r.queueName("java-order.fifo").attributes(attributes)).queueUrl();
        var first = sqs.sendMessage(r -> r.queueUrl(url).messageBody("1").messageGroupId("g"));
        var repeat = sqs.sendMessage(r -> r.queueUrl(url).messageBody("1").messageGroupId("g"));
        same(repeat.messageId(), first.messageId());
        same(first.sequenceNumber().length(), 20);
        sqs.sendMessage(r -> r.queueUrl(url).messageBody("2").messageGroupId("g"));
        var run = received(url, 2);
        var one = run.get(0);
        same(one.body(), "1");
        same(one.attributes().get(MessageSystemAttributeName.MESSAGE_GROUP_ID), "g");
        same(one.attributes().get(MessageSystemAttributeName.SEQUENCE_NUMBER), first.sequenceNumber());
        same(sqs.receiveMessage(r -> r.queueUrl(url)).messages(), List.of());
        sqs.deleteMessage(r -> r.queueUrl(url).receiptHandle(one.receiptHandle()));
        var two = run.get(1);
        same(two.body(), "2");
        sqs.deleteMessage(r -> r.queueUrl(url).receiptHandle(two.receiptHandle()));
        sqs.deleteQueue(r -> r.queueUrl(url));
    }

    private void redrive() {
        var sent = sqs.sendMessage(r -> r.queueUrl(work).messageBody("fails"));
        for (var time = 0; time < 2; time++) {
            var handle = received(work, 1).get(0).receiptHandle();
            sqs.changeMessageVisibility(r -> r.queueUrl(work).receiptHandle(handle).visibilityTimeout(0));
        }
        var dead = received(letters, 1).get(0);
        same(dead.messageId(), sent.messageId());
        sqs.changeMessageVisibility(
                r -> r.queueUrl(letters).receiptHandle(dead.receiptHandle()).visibilityTimeout(0));
        same(sqs.listDeadLetterSourceQueues(r -> r.queueUrl(letters)).queueUrls(), List.of(work));
        sqs.startMessageMoveTask(r -> r.sourceArn(lettersArn));
        var back = received(work, 1).get(0);
        same(back.messageId(), sent.messageId());
        sqs.deleteMessage(r -> r.queueUrl(work).receiptHandle(back.receiptHandle()));
        var task = sqs.listMessageMoveTasks(r -> r.sourceArn(lettersArn)).results().get(0);
        while (task.status().equals("RUNNING")) {
            task = sqs.listMessageMoveTasks(r -> r.sourceArn(lettersArn)).results().get(0);
        }
        same(task.status(), "COMPLETED");
        same(task.approximateNumberOfMessagesMoved(), 1L);
    }

    // --- what must be so -----------------------------------------------------------------------------------------

    private static void same(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError("wanted: " + wanted + ", found: " + found);
        }
    }

    private static void refused(Class<? extends Exception> kind, Runnable call) {
        try {
            call.run();
        } catch (RuntimeException found) {
            if (kind.isInstance(found)) {
                return;
            }
            throw found;
        }
        throw new AssertionError("no " + kind.getSimpleName());
    }
}
