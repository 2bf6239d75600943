package dejaqueue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/** The units: frames are those of docs/wire.md, and no message is early. Prints PASS. */
public final class Unit {
    private Unit() {}

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    /** The bytes of a frame of the page, by the beginning of its line. */
    private static byte[] worked(String page, String name) {
        String block = page.substring(page.indexOf("### Worked frames"));
        int at = block.indexOf("\n# " + name);
        check(at >= 0, "the page has no frame " + name);
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        String[] lines = block.substring(at + 1).split("\n");
        for (int line = 1; !lines[line].startsWith("#") && !lines[line].startsWith("```"); line++) {
            byte[] part = lines[line].startsWith("{")
                    ? lines[line].getBytes(StandardCharsets.UTF_8)
                    : HexFormat.of().parseHex(lines[line].replace(" ", ""));
            content.writeBytes(part);
        }
        return content.toByteArray();
    }

    private static void made(String page, String name, byte[] frame) {
        check(Arrays.equals(frame, worked(page, name)), name + HexFormat.of().formatHex(frame));
    }

    private static Frames.Frame read(String page, String name) {
        byte[] content = worked(page, name);
        Frames.decode(content);
        // A later broker may send more behind the last field.
        return Frames.decode(Arrays.copyOf(content, content.length + 3));
    }

    /** Runs where docs/wire.md is two folders up. */
    public static void main(String[] arguments) throws IOException {
        String page = Files.readString(Path.of("../../docs/wire.md"));
        made(page, "CREDIT of", Frames.credit(1_000));
        made(page, "CREDIT 0", Frames.credit(0));
        made(page, "CLOSE", Frames.close());
        made(page, "PING 1:", Frames.ping(1, 1_000_000, 0, Frames.UNKNOWN));
        made(page, "SETTLE 6:", Frames.settleLease(Frames.ACK, 0, 6, 2, 81, 0, ""));
        long[] ids = {7, 5};
        made(page, "SETTLE 7:", Frames.settleRows(Frames.ACK, 0, 7, 0, ids, new int[] {1, 2}, ""));
        long[] one = {7};
        made(page, "SETTLE 8:", Frames.settleRows(Frames.NACK, 0, 8, -1, one, new int[] {1}, "no"));
        made(page, "SETTLE 9:", Frames.settleLease(Frames.NACK, Frames.DEAD, 9, 2, 81, 0, ""));
        made(page, "SETTLE 10:", Frames.extendLeases(10, 2, 30_000, new long[] {81, 82}));
        made(page, "SETTLE 0:", Frames.settleLease(Frames.EXTEND, 0, 0, 2, 81, 0, ""));

        Frames.Reply first = (Frames.Reply) read(page, "REPLY 1:");
        check(first.ids()[2] == 140_737_488_355_330L && first.ids().length == 3, "REPLY 1");
        check(first.statusesOf(3)[2] == Status.OK, "REPLY 1");
        Frames.Reply second = (Frames.Reply) read(page, "REPLY 2:");
        check(second.ids()[1] == 5 && second.statusesOf(2)[1] == Status.DUPLICATE, "REPLY 2");
        check(((Frames.Reply) read(page, "REPLY 4:")).statusesOf(3)[2] == Status.LEASE_LOST, "REPLY 4");
        DejaQException refused = ((Frames.Reply) read(page, "REPLY 5:")).error();
        check(refused.number == 11 && !refused.canRetry(), "REPLY 5");
        byte[] fenced = "{\"number\": 40, \"error\": \"Fenced\", \"text\": \"\"}".getBytes(StandardCharsets.UTF_8);
        check(DejaQException.ofJson(fenced, false).number == DejaQException.UNAVAILABLE, "fenced");
        Frames.Pong pong = (Frames.Pong) read(page, "PONG 1:");
        check(pong.equals(new Frames.Pong(1, 1_000_000, 1_700_000_000_000_000L)), "PONG 1");
        Frames.Frame head = read(page, "DELIVERY:");
        check(head.equals(new Frames.Delivery(
                2, 3, 81, 1_700_000_030_000L, 1_700_000_000_000_123L)), "DELIVERY");
        DejaQException ended = ((Frames.Failed) read(page, "ERROR")).error();
        check(ended.canRetry() && ended.retryAfterMs() == 1_000, "ERROR");
        cutShort(worked(page, "REPLY 2:"));
        lane();
        clock();
        addresses();
        routes();
        acks();
        left();
        System.out.println("PASS");
    }

    private static void cutShort(byte[] whole) {
        for (int length = 0; length < whole.length; length++) {
            try {
                Frames.decode(Arrays.copyOf(whole, length));
            } catch (DejaQException refused) {
                continue;
            }
            throw new AssertionError(length + " bytes of a REPLY are taken");
        }
    }

    /** The page has no bytes of a SEND: these were made by hand from its tables. */
    private static void lane() {
        Message plain = new Message("two".getBytes(StandardCharsets.UTF_8), 0);
        sendMade(
                "010901000600000001000000080000000a000000026d657400000000000000000300000074776f",
                6, 10, plain);
        Message first = new Message("one".getBytes(StandardCharsets.UTF_8), 0);
        Message rich = new Message(new byte[0], 1_700_000_000_000L);
        rich.key = "kä";
        rich.group = "g";
        rich.priority = 7;
        rich.tags = List.of("a", "bc");
        rich.headers = Map.of("h", "");
        rich.expiresMs = 1_800_000_000_000L;
        sendMade(
                "0109030005000000020000000800000009000000026d65740000000000000000"
                        + "0068e5cf8b0100003f000000000000000000000000505c18a301000000800700"
                        + "00000000030000000000000001000000000000000b0000000000000009000000"
                        + "03000000000000006bc3a4670100000061020000006263010000006800000000"
                        + "6f6e65",
                5, 9, first, rich);
        byte[] command = "{}".getBytes(StandardCharsets.UTF_8);
        check(HexFormat.of().formatHex(Frames.open(command)).equals("010a0000000000007b7d"), "OPEN");
        byte[] opened = HexFormat.of().parseHex("010b0000000000000102");
        check(Frames.decode(opened) instanceof Frames.Opened found && found.schema()[1] == 2, "OPENED");
    }

    private static void sendMade(String wanted, int number, int own, Message... messages) {
        List<SendRow> rows = Arrays.stream(messages).map(one -> new SendRow(one, 0)).toList();
        byte[] frame = SendRow.frameOf(number, own, SendRow.namesOf("me", "t"), rows);
        check(HexFormat.of().formatHex(frame).equals(wanted), HexFormat.of().formatHex(frame));
    }

    private static void clock() {
        ClockOffset clock = new ClockOffset();
        check(clock.waitUs(1, 0) == Frames.UNKNOWN, "a clock that was not measured is believed");
        clock.addPong(1_000, 1_200, 5_100); // 4,000 ± 100
        check(Arrays.equals(clock.at(1_200), new long[] {4_000, 100}), "the offset");
        check(clock.waitUs(6_000, 1_200) == 6_000 - (1_200 + 4_000 - 100), "the wait");
        check(clock.at(1_200 + 2_000_000)[1] == 200, "the uncertainty does not grow");
        clock.reachedUs = 6_000;
        check(clock.waitUs(6_000, 1_200) == 0, "the broker's clock was there already");
        long now = ClockOffset.nowUs();
        clock.addPong(now, now, now + 5_000_000);
        ClockOffset next = clock.next();
        long reached = (now + 5_000_000 - ClockOffset.BROKERS_APART_US) / 1_000;
        check(Math.abs(next.reachedMs(now) - reached) < 2, "the next broker's clock may be behind");
        check(clock.reachedMs(now) == clock.brokerMs(now), "what was measured is believed");
    }

    private static void addresses() {
        try (Client client = new Client("dejaq://a:1,b", new Client.Options())) {
            Broker first = client.routes.broker();
            check(first.host().equals("a"), "begins with the first");
            client.routes.leave(first, DejaQException.badRequest("topic", "a name", ""));
            check(client.routes.broker() == first, "leaves a broker that refuses something");
            client.routes.leave(first, DejaQException.unavailable("away"));
            client.routes.leave(first, DejaQException.unavailable("told by another stream"));
            check(client.routes.broker().host().equals("b"), "leaves a broker that is away, once");
            client.routes.leave(client.routes.broker(), DejaQException.unavailable("away, too"));
            check(client.routes.broker() == first, "comes back to the first");
        }
        for (String wrong : List.of("dejaq://", "dejaq://a,,b", "http://a", "a:7464", "dejaq://a, b c")) {
            try (Client client = new Client(wrong, new Client.Options())) {
                throw new AssertionError("an address: " + wrong);
            } catch (DejaQException refused) {
                check(refused.number == 10, wrong);
            }
        }
    }

    private static DejaQException elsewhere(String url, int spread) {
        ObjectNode fields = DejaQException.JSON.createObjectNode().put("url", url).put("spread", spread);
        return new DejaQException(33, "Elsewhere", "it is", fields, true);
    }

    private static void routes() {
        try (Client client = new Client("dejaq://a:1,b:2", new Client.Options())) {
            Routes routes = client.routes;
            Broker first = routes.broker();
            check(routes.route("t").equals(new Routes.Route(first, true)), "begins at the first");
            check(routes.learn("t", first, elsewhere("dejaq://b:2", 0)), "is told where it is");
            Broker second = routes.route("t").broker();
            check(second != first && routes.route("t").follows(), "goes where the topic is");
            check(routes.broker() == first && routes.route("u").broker() == first, "that topic alone");
            check(routes.learn("t", second, elsewhere("", 0)), "it is on its way");
            check(routes.route("t").broker() == first, "asks the first where it went");
            routes.learn("t", first, elsewhere("dejaq://b:2", 0));
            routes.learn("t", second, DejaQException.unavailable("away"));
            check(routes.route("t").broker() == first, "a broker that is away serves nothing");
            check(!routes.learn("t", first, elsewhere("", 3)), "a topic in shards is no broker's");
            check(routes.isPassedOn("t") && !routes.route("t").follows(), "any broker puts it together");
            check(!routes.learn("u", first, elsewhere("dejaqs://b:2", 0)), "TLS is another matter");
            check(!routes.route("u").follows(), "brokers pass it on");
        }
        var stays = new Client.Options("", null, 0, false, true);
        try (Client client = new Client("dejaq://a:1", stays)) {
            Broker first = client.routes.broker();
            check(!client.routes.learn("t", first, elsewhere("dejaq://b:2", 0)), "it stays");
            check(client.routes.route("t").equals(new Routes.Route(first, false)), "where it is");
        }
    }

    private static Message leased(long id, long endMs) {
        Message found = new Message();
        found.id = id;
        found.attempts = 1;
        found.lease = new Message.Lease(0, 1, 1, endMs, 1);
        return found;
    }

    private static Frames.Reply reply(int number, int rows, int... statuses) {
        byte[] found = new byte[statuses.length];
        for (int row = 0; row < found.length; row++) {
            found[row] = (byte) statuses[row];
        }
        return new Frames.Reply(number, rows, new long[0], found, null);
    }

    private static void acks() {
        List<Integer> sent = new ArrayList<>();
        AckPipe.Send send = (ids, attempts) -> {
            sent.add(ids.length);
            return sent.size();
        };
        AckPipe pipe = new AckPipe(60_000);
        for (int id = 0; id < 5; id++) {
            pipe.add(List.of(leased(id, 9_000)));
            pipe.send(send);
        }
        check(sent.equals(List.of(1)), "they wait while others are on their way");
        check(pipe.answered(reply(1, 1), 0), "an answer");
        pipe.send(send);
        check(sent.equals(List.of(1, 4)), "then they go together");
        pipe.broke();
        pipe.send(send);
        check(sent.equals(List.of(1, 4, 4)) && pipe.count() == 4, "they are sent again");
        check(pipe.answered(reply(3, 4, 0, 3, 0, 1), 0), "an answer");
        check(pipe.told() == null && pipe.count() == 0, "their leases go on: they are acked");
        pipe.add(List.of(leased(9, 9_000)));
        pipe.send(send);
        pipe.answered(reply(4, 1, 3), 0);
        check(pipe.told().number == 20 && pipe.told() == null, "a lease that was lost is told, once");
        pipe.add(List.of(leased(10, 9_000)));
        pipe.send(send);
        pipe.broke();
        pipe.send(send);
        pipe.answered(reply(6, 1, 3), 9_000);
        check(pipe.told().number == DejaQException.UNAVAILABLE, "whether it is acked is unknown");
        check(!pipe.answered(reply(7, 1), 0), "no answer to an ack");
    }

    private static void left() {
        Message held = leased(1, 9_000);
        held.dueMs = 10_000;
        List<Left> found = Left.of(List.of(held), List.of(leased(3, 9_000)), 1_000);
        check(found.size() == 2 && found.get(0).released() && !found.get(1).released(), "two ways back");
        check(found.get(0).argumentMs() == 9_002 && found.get(1).argumentMs() == 0, "not due before");
        check(Left.of(List.of(), List.of(), 0).isEmpty(), "nothing is left");
        Message later = leased(2, 9_000);
        later.dueMs = 30_000;
        found = Left.of(List.of(later, held), List.of(), 1_000);
        check(found.size() == 2, "what is held for later does not put off what is due sooner");
        check(found.get(0).argumentMs() == 9_002 && found.get(1).argumentMs() == 29_002, "each in its time");
    }
}
