package dejaqueue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/** A consumer's stream by a lane of its own. */
final class LaneConsumeStream implements ConsumeStream {
    private static final int OPEN_MS_MAX = 15_000;

    private final LaneSocket socket;
    private final Lanes lanes;
    private final BufferAllocator memory;
    private final Schema schema;
    private final Queue<byte[]> said = new ConcurrentLinkedQueue<>();
    private final ReentrantLock writing = new ReentrantLock();
    private volatile boolean over;

    private LaneConsumeStream(LaneSocket socket, Lanes lanes, Client client, Schema schema) {
        this.socket = socket;
        this.lanes = lanes;
        memory = client.memory;
        this.schema = schema;
    }

    /** Has a connection become a consumer's; throws what the broker refuses it with. */
    static LaneConsumeStream open(LaneSocket socket, Lanes lanes, Client client, ObjectNode command)
            throws IOException {
        try {
            socket.setPatience(OPEN_MS_MAX);
            socket.write(Frames.open(command.toString().getBytes(StandardCharsets.UTF_8)));
            socket.flush();
            byte[] content = socket.read();
            Frames.Frame answer = content == null ? null : Frames.decode(content);
            if (answer instanceof Frames.Failed failed) {
                throw failed.error();
            }
            if (!(answer instanceof Frames.Opened opened)) {
                throw new IOException("the broker closed a consumer's lane, and did not say why");
            }
            socket.setPatience(0);
            Schema schema = MessageSerializer.deserializeSchema(channelOf(opened.schema(), 0));
            return new LaneConsumeStream(socket, lanes, client, schema);
        } catch (IOException | RuntimeException refused) {
            socket.close();
            throw refused;
        }
    }

    private static ReadChannel channelOf(byte[] content, int from) {
        var bytes = new ByteArrayInputStream(content, from, content.length - from);
        return new ReadChannel(Channels.newChannel(bytes));
    }

    @Override
    public Arrival next() throws IOException {
        byte[] content = socket.read();
        if (content == null) {
            return null;
        }
        Frames.Frame frame = Frames.decode(content);
        return new Arrival(frame, frame instanceof Frames.Delivery ? rows(content) : List.of());
    }

    private List<Message> rows(byte[] content) throws IOException {
        try (ReadChannel channel = channelOf(content, Frames.DELIVERY_BYTES);
                ArrowRecordBatch batch = MessageSerializer.deserializeRecordBatch(channel, memory);
                VectorSchemaRoot root = VectorSchemaRoot.create(schema, memory)) {
            new VectorLoader(root).load(batch);
            return Rows.messages(root);
        }
    }

    @Override
    public boolean say(byte[] frame) {
        said.add(frame);
        return !over;
    }

    /** Whoever writes takes along what others say meanwhile: they need not wait. */
    @Override
    public void flush() {
        if (System.nanoTime() - socket.heardNs() > Lane.SILENCE_NS_MAX) {
            lanes.leaveAlone(); // it answers no pings
            end();
        }
        while (!over && !said.isEmpty() && writing.tryLock()) {
            try {
                for (byte[] frame = said.poll(); frame != null; frame = said.poll()) {
                    socket.write(frame);
                }
                socket.flush();
            } catch (IOException broken) {
                end();
            } finally {
                writing.unlock();
            }
        }
    }

    @Override
    public void end() {
        over = true;
        socket.close();
    }

    @Override
    public boolean isLane() {
        return true;
    }
}
