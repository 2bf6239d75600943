package dejaqueue;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** Frames: the small fixed messages beside the record batches, as docs/wire.md has them. */
final class Frames {
    static final int ACK = 1;
    static final int NACK = 2;
    static final int EXTEND = 3;
    static final int DEAD = 1;
    static final int RELEASED = 2;
    static final long UNKNOWN = -1;
    /** Of a DELIVERY; on a lane its rows are behind them. */
    static final int DELIVERY_BYTES = 40;

    private static final int VERSION = 1;

    private Frames() {}

    /** What a broker may send. */
    sealed interface Frame permits Reply, Pong, Delivery, Failed, Ended, Opened, Other {}

    record Reply(int number, int rows, long[] ids, byte[] statuses, DejaQException error)
            implements Frame {
        /** A status for each of so many rows; one alone is true of all of them. */
        Status[] statusesOf(int wanted) {
            Status[] found = new Status[wanted];
            for (int row = 0; row < wanted; row++) {
                int place = statuses.length == wanted ? row : 0;
                found[row] = statuses.length == 0 ? Status.OK : Status.of(statuses[place] & 0xff);
            }
            return found;
        }
    }

    record Pong(int number, long clientUs, long brokerUs) implements Frame {}

    record Delivery(int partition, int rows, long leaseId, long leaseEndMs, long brokerUs)
            implements Frame {}

    record Failed(DejaQException error) implements Frame {}

    record Ended() implements Frame {}

    /** A consumer's lane is open; the schema of its deliveries, as an Arrow IPC message. */
    record Opened(byte[] schema) implements Frame {}

    /** Of a type that this client does not know. */
    record Other() implements Frame {}

    static ByteBuffer head(int type, int number, int bytes) {
        ByteBuffer frame = ByteBuffer.allocate(8 + bytes).order(ByteOrder.LITTLE_ENDIAN);
        return frame.put((byte) VERSION).put((byte) type).putShort((short) 0).putInt(number);
    }

    static byte[] credit(int rows) {
        return head(2, 0, 8).putInt(rows).putInt(0).array();
    }

    /** Makes a lane a consumer's; the command is that of a consumer by Flight. */
    static byte[] open(byte[] command) {
        return head(10, 0, command.length).put(command).array();
    }

    static byte[] close() {
        return head(7, 0, 0).array();
    }

    static byte[] ping(int number, long clientUs, long offsetUs, long uncertaintyUs) {
        return head(4, number, 24).putLong(clientUs).putLong(offsetUs).putLong(uncertaintyUs).array();
    }

    private static ByteBuffer settle(
            int op, int fate, int number, int partition, long leaseId, long argumentMs, int rows,
            int leases, int bytes, byte[] reason) {
        return head(3, number, 32 + bytes + reason.length)
                .put((byte) op).put((byte) fate).putShort((short) reason.length).putInt(partition)
                .putLong(leaseId).putLong(argumentMs).putInt(rows).putInt(leases);
    }

    static byte[] settleLease(
            int op, int fate, int number, int partition, long leaseId, long argumentMs, String reason) {
        byte[] why = reason.getBytes(StandardCharsets.UTF_8);
        return settle(op, fate, number, partition, leaseId, argumentMs, 0, 0, 0, why).put(why).array();
    }

    static byte[] settleRows(
            int op, int fate, int number, long argumentMs, long[] ids, int[] attempts, String reason) {
        byte[] why = reason.getBytes(StandardCharsets.UTF_8);
        int rows = ids.length;
        ByteBuffer frame = settle(op, fate, number, 0, -1, argumentMs, rows, 0, 10 * rows, why);
        for (long id : ids) {
            frame.putLong(id);
        }
        for (int attempt : attempts) {
            frame.putShort((short) attempt);
        }
        return frame.put(why).array();
    }

    static byte[] extendLeases(int number, int partition, long argumentMs, long[] leaseIds) {
        int bytes = 8 * leaseIds.length;
        ByteBuffer frame = settle(
                EXTEND, 0, number, partition, -1, argumentMs, 0, leaseIds.length, bytes, new byte[0]);
        for (long id : leaseIds) {
            frame.putLong(id);
        }
        return frame.array();
    }

    /** The frame of these bytes. Bytes behind its last field are a later broker's. */
    static Frame decode(byte[] content) {
        ByteBuffer frame = ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN);
        try {
            if (frame.get() != VERSION) {
                throw DejaQException.broken("a frame of version " + VERSION);
            }
            int type = frame.get();
            int flags = frame.getShort();
            int number = frame.getInt();
            return switch (type) {
                case 1 -> reply(frame, flags, number);
                case 5 -> new Pong(number, frame.getLong(), frame.getLong());
                case 6 -> new Delivery(
                        frame.getInt(), frame.getInt(), frame.getLong(), frame.getLong(), frame.getLong());
                case 7 -> new Ended();
                case 8 -> new Failed(DejaQException.ofJson(rest(frame), false));
                case 11 -> new Opened(rest(frame));
                default -> new Other();
            };
        } catch (BufferUnderflowException tooShort) {
            throw DejaQException.broken("a whole frame, got " + content.length + " bytes");
        }
    }

    private static byte[] rest(ByteBuffer frame) {
        byte[] found = new byte[frame.remaining()];
        frame.get(found);
        return found;
    }

    private static Reply reply(ByteBuffer frame, int flags, int number) {
        int rows = frame.getInt();
        frame.getInt();
        long firstId = frame.getLong();
        if ((flags & 4) != 0) {
            DejaQException error = DejaQException.ofJson(rest(frame), false);
            return new Reply(number, rows, new long[0], new byte[0], error);
        }
        boolean hasIds = (flags & 1) != 0;
        boolean hasStatuses = (flags & 2) != 0;
        if (rows < 0 || (long) rows * ((hasIds ? 8 : 0) + (hasStatuses ? 1 : 0)) > frame.remaining()) {
            throw new BufferUnderflowException();
        }
        long[] ids = new long[hasIds || firstId >= 0 ? rows : 0];
        for (int row = 0; row < ids.length; row++) {
            ids[row] = hasIds ? frame.getLong() : firstId + row;
        }
        byte[] statuses = new byte[hasStatuses ? rows : 0];
        frame.get(statuses);
        return new Reply(number, rows, ids, statuses, null);
    }
}
