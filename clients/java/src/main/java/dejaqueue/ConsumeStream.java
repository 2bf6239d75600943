package dejaqueue;

import java.io.IOException;
import java.util.List;

/** What a consumer hears and says, by Flight or by a lane. */
interface ConsumeStream {
    /**
     * A frame that came.
     *
     * @param rows of a DELIVERY; of others none
     */
    record Arrival(Frames.Frame frame, List<Message> rows) {}

    /** The next frame; null = none comes any more. By one thread. */
    Arrival next() throws IOException;

    /** Says a frame, at the latest with `flush`; false = the stream is over. Does not wait long. */
    boolean say(byte[] frame);

    /** May wait until the broker takes what was said: not under a lock that `next`'s thread needs. */
    void flush();

    /** Ends it, whoever waits for it. Twice is fine. */
    void end();

    /** Whether it is a lane: what ends one may be its own fault. */
    boolean isLane();
}
