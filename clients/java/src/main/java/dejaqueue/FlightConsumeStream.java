package dejaqueue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.memory.ArrowBuf;

/** A consumer's stream by Flight. */
final class FlightConsumeStream implements ConsumeStream {
    private final Client client;
    private final FlightStream reader;
    private final FlightClient.ClientStreamListener writer;

    FlightConsumeStream(Client client, Routes.Route route, ObjectNode command) {
        this.client = client;
        Broker asked = route.broker();
        asked.channel().resetConnectBackoff();
        var exchange = asked.flight().doExchange(Client.descriptor(command), client.streamOptions(route.follows()));
        reader = exchange.getReader();
        writer = exchange.getWriter();
    }

    @Override
    public Arrival next() {
        while (reader.next()) {
            ArrowBuf metadata = reader.getLatestMetadata();
            if (metadata != null) {
                Frames.Frame frame = Frames.decode(Client.bytesOf(metadata));
                boolean hasRows = frame instanceof Frames.Delivery;
                return new Arrival(frame, hasRows ? Rows.messages(reader.getRoot()) : List.of());
            }
        }
        return null;
    }

    /** That it failed is told by the end of the stream, too. */
    @Override
    public boolean say(byte[] frame) {
        ArrowBuf content = client.memory.buffer(frame.length);
        content.writeBytes(frame);
        try {
            writer.putMetadata(content);
            return true;
        } catch (RuntimeException broken) {
            return false;
        }
    }

    @Override
    public void flush() {
        // gRPC sends what it has.
    }

    @Override
    public void end() {
        try {
            reader.cancel("done", null);
            reader.close();
        } catch (Exception over) {
            // It has ended by itself.
        }
    }

    @Override
    public boolean isLane() {
        return false;
    }
}
